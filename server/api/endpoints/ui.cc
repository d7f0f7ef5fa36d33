// GET /ui and its parts: a page that is compiled into the binary. It holds no data and needs no
// key; its scripts ask the API as any client does, with the key that the user gives them.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/api/endpoints/endpoints.h"
#include "server/ui/ui_files.h"

namespace baton {
namespace {

// Scripts, styles and data of this server alone; no inline code, no frames, no forms.
constexpr char kContentPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const char* TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return "text/javascript; charset=utf-8";
}

std::vector<std::string> ListOf(const std::string& header) {
  std::vector<std::string> entries = absl::StrSplit(header, ',');
  for (std::string& entry : entries) absl::StripAsciiWhitespace(&entry);
  return entries;
}

// True if the client takes gzip (RFC 9110, 12.5.3): it names it, or all, with a weight above 0.
bool TakesGzip(const std::string& accept_encoding) {
  for (const std::string& entry : ListOf(accept_encoding)) {
    const std::vector<std::string> parts =
        absl::StrSplit(entry, absl::ByAnyChar("; "), absl::SkipEmpty());
    if (parts.empty() || (!absl::EqualsIgnoreCase(parts[0], "gzip") && parts[0] != "*")) continue;
    double weight = 1;
    const bool has_weight = parts.size() > 1 && absl::StartsWithIgnoreCase(parts[1], "q=");
    return !has_weight || (absl::SimpleAtod(parts[1].substr(2), &weight) && weight > 0);
  }
  return false;
}

bool HasTag(const std::string& if_none_match, const std::string& tag) {
  const std::vector<std::string> tags = ListOf(if_none_match);
  return std::any_of(tags.begin(), tags.end(), [&](const std::string& each) {
    return each == tag || each == "W/" + tag || each == "*";
  });
}

HttpReply FileReply(const UiFile& file, const HttpRequest& request) {
  const bool is_gzip = TakesGzip(request.accept_encoding);
  const std::string tag = absl::StrCat("\"", std::string(file.hash), is_gzip ? "-gzip\"" : "\"");
  HttpReply reply;
  reply.headers = {{"ETag", tag},
                   {"Cache-Control", "no-cache"},  // asked again each time: a new binary shows
                   {"Vary", "Accept-Encoding"},
                   {"Content-Security-Policy", kContentPolicy},
                   {"Cross-Origin-Opener-Policy", "same-origin"},
                   {"Cross-Origin-Resource-Policy", "same-origin"},
                   {"Referrer-Policy", "no-referrer"},
                   {"X-Content-Type-Options", "nosniff"}};
  if (HasTag(request.if_none_match, tag)) {
    reply.status = 304;
    reply.content_type.clear();
    return reply;
  }
  reply.content_type = TypeOf(file.name);
  if (is_gzip) reply.headers.emplace_back("Content-Encoding", "gzip");
  reply.body = std::string(is_gzip ? file.gzip : file.plain);
  return reply;
}

}  // namespace

void AnswerUi(ApiFront& front, ApiCall call) {
  const std::string& path = call.request.path;
  if (path == "/ui/" && front.facts().has_ui) {  // links of the page count from /ui
    HttpReply reply;
    reply.status = 308;
    reply.headers = {{"Location", "../ui"}};
    front.Reply(call, std::move(reply));
    return;
  }
  const std::string_view name = path == "/ui" ? "index.html" : std::string_view(call.argument);
  const auto files = UiFiles();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const UiFile& file) { return file.name == name; });
  if (found == files.end() || !front.facts().has_ui) {
    front.Reply(call, call.refusal(HttpError(404,
                                             front.facts().has_ui
                                                 ? "The page has no such part; it begins at /ui."
                                                 : "The page is switched off (server.ui).",
                                             "not_found")));
    return;
  }
  front.Reply(call, FileReply(*found, call.request));
}

}  // namespace baton
