// `baton serve` over TLS and a Unix socket, with the clients that people have: curl and openssl;
// the OpenAI SDK is in tests/sdk. Certificates change under running streams, clients stop half-way
// through handshakes, and files that do not serve end the start with a message.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/tls_client.h"

namespace baton {
namespace {

struct Output {
  int status = 0;    // of exit
  std::string text;  // stdout and stderr
};

Output Run(const std::string& command) {
  Output output;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> chunk;
  size_t n = 0;
  while ((n = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0)
    output.text.append(chunk.data(), n);
  output.status = WEXITSTATUS(::pclose(pipe));
  return output;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string Post(const std::string& body) {
  return absl::StrCat(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
      "Content-Length: ", body.size(), "\r\n\r\n", body);
}

// A server with a certificate of the test's own authority.
struct TlsRig {
  explicit TlsRig(std::vector<std::string> more = {}) {
    ::signal(SIGPIPE, SIG_IGN);
    folder.Write("ca.pem", authority.pem());
    Install("first");
    more.insert(more.end(), {"--demo", "--tls-cert", folder.file("served.pem"), "--tls-key",
                             folder.file("served.key")});
    auto started = ServedBaton::Start(more);
    INFO((started.ok() ? std::string() : std::string(started.status().message())));
    REQUIRE(started.ok());
    served = *std::move(started);
  }

  void Install(const std::string& name, absl::Duration end = absl::Hours(24 * 90)) {
    authority.Issue(name, absl::Hours(-1), end).WriteTo(folder, "served");
  }
  int port() const { return served->url().port; }
  std::string Curl(const std::string& flags, const std::string& path) const {
    return absl::StrCat("curl -sS --max-time 60 --cacert ", folder.file("ca.pem"), " ", flags,
                        " https://localhost:", port(), path);
  }
  double Metric(const std::string& name, const std::string& label = "") const {
    const std::string page = Run(Curl(curl_flags, "/metrics")).text;
    double sum = 0;
    for (size_t at = 0; (at = page.find("\n" + name, at)) != std::string::npos; ++at) {
      const std::string line = page.substr(at + 1, page.find('\n', at + 1) - at - 1);
      if (Has(line, label)) sum += std::stod(line.substr(line.rfind(' ')));
    }
    return sum;
  }

  TempFolder folder;
  TestAuthority authority{"authority"};
  std::string curl_flags;
  std::unique_ptr<ServedBaton> served;
};

TEST_CASE("curl is served over TLS 1.2 and 1.3, and its trace is in the log") {
  TlsRig rig;
  CHECK(Has(rig.served->log(), absl::StrCat("ready  https://127.0.0.1:", rig.port())));
  for (const char* version : {"--tlsv1.2 --tls-max 1.2", "--tlsv1.3"}) {
    INFO(version);
    const Output answer = Run(
        rig.Curl(absl::StrCat(version, " -H 'Content-Type: application/json' -d '",
                              R"({"prompt":"What is 17 + 25?","max_tokens":4,"temperature":0}')",
                              " -H 'traceparent: "
                              "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' -v"),
                 "/v1/completions"));
    INFO(answer.text);
    CHECK(answer.status == 0);
    CHECK(Has(answer.text, "HTTP/1.1 200 OK"));
    CHECK(Has(answer.text, "\"choices\""));
    CHECK(Has(answer.text, "http/1.1"));
  }
  CHECK(rig.served->WaitForLog(" trace 0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331 ",
                               absl::Seconds(5)));
  CHECK(Run(rig.Curl("--tls-max 1.1 --tlsv1.1 --ciphers DEFAULT@SECLEVEL=0", "/health")).status ==
        35);
  CHECK(rig.Metric("baton_tls_handshakes_total", "result=\"ok\"") >= 2);
  const double left = rig.Metric("baton_tls_certificate_expiry_seconds");
  CHECK(left > 89 * 86400);
  CHECK(left < 91 * 86400);
}

TEST_CASE("HTTP on the TLS port is answered with a 400 that says https, and counted") {
  TlsRig rig;
  const Output plain =
      Run(absl::StrCat("curl -sS -i --max-time 20 http://127.0.0.1:", rig.port(), "/health"));
  INFO(plain.text);
  CHECK(Has(plain.text, "HTTP/1.1 400 Bad Request"));
  CHECK(Has(plain.text, "https://"));
  CHECK(rig.Metric("baton_tls_handshakes_total", "result=\"plain_http\"") == 1);
}

TEST_CASE("SIGHUP brings a new certificate under 64 streams, and none is lost") {
  TlsRig rig;
  constexpr int kStreams = 64;
  std::vector<std::unique_ptr<TlsClient>> streams;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(
        std::make_unique<TlsClient>(rig.port(), TlsWishes{.trusted = &rig.authority}));
    REQUIRE(streams.back()->subject() == "first");
    REQUIRE(streams.back()->Send(Post(StreamBody(absl::StrCat("Story ", i, "."), 60))));
  }
  for (const auto& stream : streams) REQUIRE(stream->ReadUntil("data: ", absl::Seconds(60)));
  rig.Install("second");
  ::kill(rig.served->pid(), SIGHUP);
  REQUIRE(rig.served->WaitForLog("read again, it expires on", absl::Seconds(10)));
  CHECK(TlsClient(rig.port(), {.trusted = &rig.authority}).subject() == "second");
  for (int i = 0; i < kStreams; ++i) {
    INFO(i);
    CHECK(streams[static_cast<size_t>(i)]->ReadUntil("data: [DONE]", absl::Seconds(120)));
  }
  // A certificate that is soon over is taken, with a warning; a torn pair is not.
  rig.Install("short", absl::Hours(24 * 3));
  CHECK(rig.served->WaitForLog(": renew it", absl::Seconds(10)));
  rig.folder.Write("served.pem", rig.authority.Issue("torn").certificate);
  CHECK(rig.served->WaitForLog("the new certificate is refused, the one before stays",
                               absl::Seconds(10)));
  CHECK(TlsClient(rig.port(), {.trusted = &rig.authority}).subject() == "short");
  CHECK(rig.Metric("baton_tls_reloads_total", "result=\"refused\"") >= 1);
  CHECK(rig.served->Children().size() == 4);  // SIGHUP ended none of them
}

TEST_CASE("with --tls-client-ca, openssl and curl without its certificate get an alert") {
  TempFolder folder;
  TestAuthority clients("clients"), foreign("foreign");
  folder.Write("clients.pem", clients.pem());
  clients.Issue("good").WriteTo(folder, "good");
  clients.Issue("old", absl::Hours(-48), absl::Hours(-1)).WriteTo(folder, "old");
  foreign.Issue("strange").WriteTo(folder, "strange");
  TlsRig rig({"--tls-client-ca", folder.file("clients.pem")});
  const auto own = [&](const std::string& name) {
    return absl::StrCat(" --cert ", folder.file(name + ".pem"), " --key ",
                        folder.file(name + ".key"));
  };
  rig.curl_flags = own("good");
  CHECK(Run(rig.Curl(own("good"), "/health")).text == "{\"status\":\"ok\"}");
  const auto openssl = [&](const std::string& version, const std::string& flags) {
    return Run(absl::StrCat(
                   "(printf 'GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'; sleep 2) | ",
                   "openssl s_client -quiet -no_ign_eof -connect 127.0.0.1:", rig.port(), " -",
                   version, " ", flags))
        .text;
  };
  const auto file = [&](const std::string& name) {
    return absl::StrCat("-cert ", folder.file(name + ".pem"), " -key ", folder.file(name + ".key"));
  };
  for (const char* version : {"tls1_2", "tls1_3"}) {
    INFO(version);
    CHECK(Has(openssl(version, file("good")), "HTTP/1.1 200 OK"));
    CHECK(Has(openssl(version, ""), "alert"));
    CHECK(Has(openssl(version, file("old")), "alert certificate expired"));
    CHECK(Has(openssl(version, file("strange")), "alert unknown ca"));
  }
  CHECK(rig.Metric("baton_tls_handshakes_total", "client_certificate_missing") == 2);
  CHECK(rig.Metric("baton_tls_handshakes_total", "client_certificate_expired") == 2);
  CHECK(rig.Metric("baton_tls_handshakes_total", "client_certificate_foreign") == 2);
  CHECK(Run(rig.Curl(own("good"), "/health")).status == 0);
}

// Resident memory in MiB.
double MemoryOf(pid_t process) {
  const Output status = Run(absl::StrCat("grep VmRSS /proc/", process, "/status"));
  return std::stod(status.text.substr(status.text.find(':') + 1)) / 1024;
}

TEST_CASE("1,000 half-done handshakes harm no stream, are bounded and end by their deadline") {
  TlsRig rig({"--server.handshake_timeout=3s"});
  const pid_t router = rig.served->Child("router");
  TlsClient stream(rig.port(), {.trusted = &rig.authority});
  REQUIRE(stream.Send(Post(StreamBody("Tell me a story.", 3000))));
  REQUIRE(stream.ReadUntil("data: "));
  const double before = MemoryOf(router);
  std::vector<std::unique_ptr<RawClient>> half;
  for (int i = 0; i < 1000; ++i) {
    half.push_back(std::make_unique<RawClient>(rig.port()));
    if (i % 2 == 0) half.back()->Send(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9));
  }
  const size_t read = stream.received.size();
  for (int n = 0; n < 50; ++n) {
    stream.received.clear();
    CHECK(stream.ReadUntil("data: ", absl::Seconds(2)));
  }
  CHECK(read > 0);
  const double grown = MemoryOf(router) - before;
  INFO(grown);
  CHECK(grown < 32);
  CHECK(rig.Metric("baton_tls_handshakes{") <= 256);
  CHECK(rig.Metric("baton_tls_handshakes_total", "crowded") >= 700);
  CHECK(WaitUntil(absl::Seconds(10), [&] { return rig.Metric("baton_tls_handshakes{") == 0; }));
  CHECK(rig.Metric("baton_tls_handshakes_total", "timeout") >= 200);
  CHECK(stream.ReadUntil("data: [DONE]", absl::Seconds(120)));
}

TEST_CASE("SIGTERM drains streams over TLS and the Unix socket, and ends each as TLS ends") {
  const TempFolder folder;
  TlsRig rig({"--uds", folder.file("baton.sock")});
  TlsClient secured(rig.port(), {.trusted = &rig.authority});
  RawClient local(folder.file("baton.sock"));
  for (RawClient* client : {static_cast<RawClient*>(&secured), &local}) {
    REQUIRE(client->Send(Post(StreamBody("Tell me a story.", 300))));
    REQUIRE(client->ReadUntil("data: ", absl::Seconds(60)));
  }
  std::atomic<int> n_ended = 0;
  const auto read = [&](RawClient* client) { n_ended += client->ReadToEnd(absl::Seconds(60)); };
  std::thread secured_reader(read, &secured), local_reader(read, &local);
  const absl::StatusOr<int> status = rig.served->Terminate();
  secured_reader.join();
  local_reader.join();
  REQUIRE(status.ok());
  CHECK(*status == 0);
  CHECK(n_ended == 2);
  for (RawClient* client : {static_cast<RawClient*>(&secured), &local}) {
    CHECK(Has(client->received, "data: [DONE]"));
  }
  CHECK(secured.alert().empty());
}

TEST_CASE("a Unix socket serves beside TCP or alone, after a kill too, and goes at the end") {
  const TempFolder folder;
  const std::string path = folder.file("baton.sock");
  const std::string curl =
      absl::StrCat("curl -sS --max-time 60 --unix-socket ", path, " http://localhost/health");
  for (const bool alone : {false, true}) {
    INFO(alone);
    std::vector<std::string> args = {"--demo", "--uds", path};
    if (alone) args.insert(args.end(), {"--port", "-1"});
    auto started = ServedBaton::Start(args);
    INFO((started.ok() ? std::string() : std::string(started.status().message())));
    REQUIRE(started.ok());
    ServedBaton& served = **started;
    CHECK(Has(served.log(), absl::StrCat("unix:", path)));
    CHECK(Has(served.log(), "ready  http://") == !alone);
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0660);
    CHECK(Run(curl).text == "{\"status\":\"ok\"}");
    // Somebody else cannot have it; a router that is killed gets it again.
    const auto second = ServedBaton::Start({"--demo", "--uds", path});
    CHECK_FALSE(second.ok());
    CHECK(Has(std::string(second.status().message()), "somebody listens on"));
    CHECK(Run(curl).status == 0);
    ::kill(served.Child("router"), SIGKILL);
    CHECK(WaitUntil(absl::Seconds(30), [&] { return Run(curl).text == "{\"status\":\"ok\"}"; }));
    CHECK(served.Terminate().ok());
    CHECK_FALSE(std::filesystem::exists(path));
  }
}

TEST_CASE("files that do not serve end the start with a message that names them") {
  TempFolder folder;
  TestAuthority authority("authority");
  authority.Issue("served").WriteTo(folder, "served");
  authority.Issue("other").WriteTo(folder, "other");
  authority.Issue("old", absl::Hours(-48), absl::Hours(-1)).WriteTo(folder, "old");
  folder.Write("file", "");
  const std::string cert = folder.file("served.pem"), key = folder.file("served.key");
  struct Case {
    std::vector<std::string> flags;
    std::string message;
  };
  for (const Case& one :
       {Case{{"--tls-cert", cert}, "server.tls_key is not"},
        Case{{"--tls-cert", cert, "--tls-key", folder.file("other.key")},
             "is the key of another certificate"},
        Case{{"--tls-cert", folder.file("old.pem"), "--tls-key", folder.file("old.key")},
             "expired on"},
        Case{{"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", folder.file("none.pem")},
             folder.file("none.pem")},
        Case{{"--uds", folder.file("file")}, "is no socket"}}) {
    std::vector<std::string> args = {"--demo"};
    args.insert(args.end(), one.flags.begin(), one.flags.end());
    const auto started = ServedBaton::Start(args);
    REQUIRE_FALSE(started.ok());
    INFO(started.status().message());
    CHECK(Has(std::string(started.status().message()), one.message));
  }
}

}  // namespace
}  // namespace baton
