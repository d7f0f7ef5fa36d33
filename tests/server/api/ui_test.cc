// The page /ui as it is served: its headers, its forms, and where it is switched off. What it does
// is tested in a browser (tests/ui).
#include <zlib.h>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "server/ui/ui_files.h"
#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

struct Told {
  int status;
  std::string head, body;
  bool Has(const std::string& line) const {
    return absl::StrContains(head, "\r\n" + line + "\r\n");
  }
};

Told Ask(const Served& served, const std::string& method, const std::string& path,
         const std::string& lines = "") {
  RawClient client(served.port);
  REQUIRE(client.Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: a\r\n", lines,
                                   "Connection: close\r\n\r\n")));
  client.ReadUntil("\xff never");
  const size_t end = client.received.find("\r\n\r\n");
  REQUIRE(end != std::string::npos);
  return {std::stoi(client.received.substr(9, 3)), client.received.substr(0, end + 2),
          client.received.substr(end + 4)};
}

const UiFile& FileOf(std::string_view name) {
  for (const UiFile& file : UiFiles())
    if (file.name == name) return file;
  FAIL("no such file");
  return UiFiles().front();
}

std::string Inflated(std::string_view gzip) {
  std::string plain(1 << 20, '\0');
  z_stream stream{};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
  stream.avail_in = static_cast<uInt>(gzip.size());
  stream.next_out = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_out = static_cast<uInt>(plain.size());
  REQUIRE(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK);
  CHECK(inflate(&stream, Z_FINISH) == Z_STREAM_END);
  plain.resize(stream.total_out);
  inflateEnd(&stream);
  return plain;
}

}  // namespace

TEST_CASE("the page is served with a strict policy, and so is each of its parts") {
  Served served;
  const Told page = Ask(served, "GET", "/ui");
  CHECK(page.status == 200);
  CHECK(page.body == FileOf("index.html").plain);
  CHECK(page.Has("Content-Type: text/html; charset=utf-8"));
  for (const UiFile& file : UiFiles()) {
    INFO(file.name);
    const Told part = Ask(served, "GET", absl::StrCat("/ui/", std::string(file.name)));
    CHECK(part.status == 200);
    CHECK(part.body == file.plain);
    CHECK(
        part.Has("Content-Security-Policy: default-src 'none'; script-src 'self'; style-src "
                 "'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
                 "form-action 'none'; frame-ancestors 'none'"));
    CHECK(part.Has("X-Content-Type-Options: nosniff"));
    CHECK(part.Has("Referrer-Policy: no-referrer"));
    CHECK(part.Has("Vary: Accept-Encoding"));
    CHECK_FALSE(absl::StrContains(part.head, "Content-Encoding"));
  }
  CHECK(Ask(served, "GET", "/ui/page.js").Has("Content-Type: text/javascript; charset=utf-8"));
  CHECK(Ask(served, "GET", "/ui/page.css").Has("Content-Type: text/css; charset=utf-8"));
}

TEST_CASE("the page comes compressed where the client takes that") {
  Served served;
  const UiFile& file = FileOf("page.css");
  for (const UiFile& each : UiFiles()) CHECK(Inflated(each.gzip) == each.plain);
  CHECK(3 * file.gzip.size() < file.plain.size());
  CHECK(file.gzip.substr(4, 4) == std::string(4, '\0'));  // no time: equal builds are equal
  for (const char* takes : {"gzip", "br, GZIP;q=0.5", "*", "deflate, gzip ; q=1"}) {
    INFO(takes);
    const Told told =
        Ask(served, "GET", "/ui/page.css", absl::StrCat("Accept-Encoding: ", takes, "\r\n"));
    CHECK(told.Has("Content-Encoding: gzip"));
    CHECK(told.body == file.gzip);
  }
  for (const char* takes : {"identity", "br", "gzip;q=0", "gzip; q=0.0", ""}) {
    INFO(takes);
    CHECK(
        Ask(served, "GET", "/ui/page.css", absl::StrCat("Accept-Encoding: ", takes, "\r\n")).body ==
        file.plain);
  }
}

TEST_CASE("who has the page already gets no body; HEAD gets none either; other methods a 405") {
  Served served;
  const std::string tag = absl::StrCat("\"", std::string(FileOf("page.js").hash), "\"");
  CHECK(Ask(served, "GET", "/ui/page.js").Has("ETag: " + tag));
  for (const std::string& has : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    const Told told = Ask(served, "GET", "/ui/page.js", "If-None-Match: " + has + "\r\n");
    CHECK(told.status == 304);
    CHECK(told.body.empty());
    CHECK(told.Has("ETag: " + tag));
    CHECK_FALSE(absl::StrContains(told.head, "Content-Length"));
  }
  // The compressed form is another one.
  CHECK(Ask(served, "GET", "/ui/page.js", "Accept-Encoding: gzip\r\nIf-None-Match: " + tag + "\r\n")
            .status == 200);
  const Told head = Ask(served, "HEAD", "/ui");
  CHECK(head.status == 200);
  CHECK(head.body.empty());
  CHECK(head.Has(absl::StrCat("Content-Length: ", FileOf("index.html").plain.size())));
  for (const char* method : {"POST", "PUT", "DELETE"}) {
    const Told told = Ask(served, method, "/ui");
    CHECK(told.status == 405);
    CHECK(told.Has("Allow: GET, HEAD, OPTIONS"));
  }
}

TEST_CASE("there is one page, and nothing of the machine's files") {
  Served served;
  const Told moved = Ask(served, "GET", "/ui/");
  CHECK(moved.status == 308);
  CHECK(moved.Has("Location: ../ui"));
  for (const char* path :
       {"/ui/none.js", "/ui/../server", "/ui/%2e%2e%2fREADME.md", "/ui/a/b", "/uix"})
    CHECK(Ask(served, "GET", path).status == 404);
}

TEST_CASE("the page can be switched off") {
  ApiFrontFacts facts;
  facts.has_ui = false;
  Served served({}, {}, "demo", facts);
  for (const char* path : {"/ui", "/ui/", "/ui/page.js"}) {
    const Told told = Ask(served, "GET", path);
    CHECK(told.status == 404);
    CHECK(absl::StrContains(told.body, "server.ui"));
  }
}

}  // namespace baton
