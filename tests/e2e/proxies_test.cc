// nginx and HAProxy in front of a real `baton serve`, with the files of configs/: streams pass as
// they come, a client that goes away ends its request, and large bodies pass.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/free_port.h"
#include "tests/support/raw_client.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  REQUIRE_FALSE(text.str().empty());
  return text.str();
}

// A program that runs until the end of the scope.
class Program {
 public:
  explicit Program(const std::vector<std::string>& command) : pid_(::fork()) {
    if (pid_ != 0) return;
    std::vector<char*> args;
    for (const std::string& arg : command) args.push_back(const_cast<char*>(arg.c_str()));
    args.push_back(nullptr);
    ::execvp(args[0], args.data());
    ::_exit(127);
  }
  ~Program() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

 private:
  pid_t pid_;
};

// The file of configs/, with the test's port and socket.
std::string Config(const std::string& name, int port, const std::string& socket) {
  const std::string text = ReadAll(absl::StrCat(BATON_SOURCE_DIR "/configs/", name));
  const std::string changed =
      absl::StrReplaceAll(text, {{"listen 8080", absl::StrCat("listen 127.0.0.1:", port)},
                                 {"bind :8080", absl::StrCat("bind 127.0.0.1:", port)},
                                 {"/run/baton/baton.sock", socket}});
  REQUIRE(changed != text);
  return changed;
}

// Starts the proxy with its example of a configuration.
std::unique_ptr<Program> StartProxy(const std::string& name, int port, const TempFolder& folder,
                                    const std::string& socket) {
  if (name == "haproxy") {
    folder.Write("haproxy.cfg", Config("haproxy.cfg", port, socket));
    return std::make_unique<Program>(
        std::vector<std::string>{"haproxy", "-db", "-q", "-f", folder.file("haproxy.cfg")});
  }
  folder.Write("baton.conf", Config("nginx.conf", port, socket));
  std::string main =
      absl::StrCat("daemon off;\nmaster_process off;\npid ", folder.file("pid"), ";\nerror_log ",
                   folder.file("error.log"), ";\nevents {}\nhttp {\naccess_log off;\n");
  for (const char* use : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
    absl::StrAppend(&main, use, "_temp_path ", folder.file(use), ";\n");
  folder.Write("nginx.conf", absl::StrCat(main, "include ", folder.file("baton.conf"), ";\n}\n"));
  return std::make_unique<Program>(std::vector<std::string>{"nginx", "-p", folder.path(), "-e",
                                                            folder.file("error.log"), "-c",
                                                            folder.file("nginx.conf")});
}

TEST_CASE("streams, cancels and large bodies pass through nginx and HAProxy") {
  const TempFolder folder;
  const std::string socket = folder.file("baton.sock");
  const auto served = ServedBaton::Start({"--demo", "--prefill", "1", "--uds", socket,
                                          "--server.uds_mode=0666", "--server.max_body=8388608"});
  INFO(served.status().ToString());
  REQUIRE(served.ok());
  const HttpClient direct = (*served)->client();
  for (const std::string name : {"nginx", "haproxy"}) {
    INFO(name);
    const int port = FreePort();
    const auto proxy = StartProxy(name, port, folder, socket);
    const HttpClient client(HttpUrl{"127.0.0.1", port}, absl::Seconds(60));
    REQUIRE(WaitUntil(absl::Seconds(20), [&] {
      const auto health = client.Get("/health");
      return health.ok() && health->status == 200;
    }));
    CHECK(client.Get("/metrics")->status == 404);

    // Tokens arrive as they are made. A proxy that gathers pages of 4 KiB would send about eight
    // parts; a fast machine makes tokens so quickly that some share a part without any proxy.
    const std::string body = StreamBody("Tell me a story.", 200);
    std::set<absl::Time> arrivals;
    std::string last;
    const auto stream =
        client.Post("/v1/completions", body, [&](std::string_view data, absl::Time received) {
          arrivals.insert(received);
          last = std::string(data);
          return true;
        });
    REQUIRE(stream.ok());
    CHECK(stream->status == 200);
    CHECK(last == "[DONE]");
    CHECK(arrivals.size() >= 20);

    const auto is_idle = [&] { return MetricSum(direct, "baton_requests_running") == 0; };
    for (const bool streams : {true, false}) {
      INFO(streams);
      std::string request = StreamBody("Tell me a long story.", 3000);
      if (!streams)
        request = absl::StrReplaceAll(request, {{"\"stream\":true", "\"stream\":false"}});
      RawClient gone(port);
      REQUIRE(gone.Send(absl::StrCat(
          "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n",
          "Content-Length: ", request.size(), "\r\n\r\n", request)));
      if (streams) REQUIRE(gone.ReadUntil("data: "));
      REQUIRE(WaitUntil(absl::Seconds(10), [&] { return !is_idle(); }));
      gone.Close();
      const absl::Time closed = absl::Now();
      CHECK(WaitUntil(absl::Seconds(10), is_idle));
      CHECK(absl::Now() - closed < absl::Seconds(2));
    }

    const std::string text(4 << 20, 'x');
    const auto large =
        client.Post("/detokenize", absl::StrCat(R"({"tokens":[5],"user":")", text, "\"}"));
    REQUIRE(large.ok());
    INFO(large->body.substr(0, 300));
    CHECK(large->status == 200);
  }
}

}  // namespace
}  // namespace baton
