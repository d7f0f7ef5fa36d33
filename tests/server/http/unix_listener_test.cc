// The file of a Unix socket: who may connect, what is replaced and what is refused.
#include "common/unix_listener.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/server/http/http_rig.h"

namespace baton {
namespace {

std::string ErrorOf(const std::string& path) {
  const auto listener = UnixListener::Listen(path, 0660, "server.uds");
  return listener.ok() ? "" : std::string(listener.status().message());
}

TEST_CASE("a Unix socket has the mode that was asked, and goes at the end") {
  const TempFolder folder;
  const std::string path = folder.file("a.sock");
  {
    const auto listener = UnixListener::Listen(path, 0660, "server.uds");
    REQUIRE(listener.ok());
    struct stat info {};
    REQUIRE(::lstat(path.c_str(), &info) == 0);
    CHECK(S_ISSOCK(info.st_mode));
    CHECK((info.st_mode & 0777) == 0660);
    CHECK(RawClient(path).is_open());
    CHECK(ErrorOf(path).find("somebody listens on") != std::string::npos);
    CHECK(RawClient(path).is_open());
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("the socket of a killed server is replaced, anything else is refused and stays") {
  const TempFolder folder;
  const std::string path = folder.file("a.sock");
  const pid_t killed = ::fork();
  if (killed == 0) {
    const auto listener = UnixListener::Listen(path, 0660, "server.uds");
    ::_exit(listener.ok() ? 0 : 1);  // without the destructor
  }
  int status = 0;
  REQUIRE(::waitpid(killed, &status, 0) == killed);
  REQUIRE(status == 0);
  REQUIRE(std::filesystem::exists(path));
  CHECK_FALSE(RawClient(path).is_open());
  CHECK(ErrorOf(path).empty());

  folder.Write("file", "precious");
  const std::string error = ErrorOf(folder.file("file"));
  CHECK(error.find(folder.file("file")) != std::string::npos);
  CHECK(error.find("is no socket") != std::string::npos);
  CHECK(std::filesystem::file_size(folder.file("file")) == 8);
  CHECK(ErrorOf(folder.file(std::string(120, 'x'))).find("too long") != std::string::npos);
  CHECK(ErrorOf(folder.file("none/a.sock")).find("cannot listen on") != std::string::npos);
}

TEST_CASE("another server's file at the same path is not removed") {
  const TempFolder folder;
  const std::string path = folder.file("a.sock");
  auto first = UnixListener::Listen(path, 0600, "server.uds");
  REQUIRE(first.ok());
  std::filesystem::remove(path);
  const auto second = UnixListener::Listen(path, 0600, "server.uds");
  REQUIRE(second.ok());
  first->reset();
  CHECK(RawClient(path).is_open());
}

TEST_CASE(
    "a server is reached over TCP and a Unix socket at the same time, or neither is an error") {
  TempFolder folder;
  HttpServerOptions options;
  options.uds = folder.file("both.sock");
  HttpRig rig(options);
  rig.answers.body_bytes = 3;
  for (RawClient* client : {std::make_unique<RawClient>(rig.port).release(),
                            std::make_unique<RawClient>(options.uds).release()}) {
    const std::unique_ptr<RawClient> owned(client);
    REQUIRE(client->Send(Get("/now")));
    CHECK(client->ReadUntil("xxx"));
  }
  const HttpStats stats = rig.Stats();
  CHECK(stats.opened[static_cast<size_t>(TransportKind::kTcp)] == 1);
  CHECK(stats.opened[static_cast<size_t>(TransportKind::kUnix)] == 1);
  HttpServerOptions neither;
  neither.port = -1;
  CHECK(CheckFiles(neither).message().find("server.uds is empty") != std::string::npos);
}

}  // namespace
}  // namespace baton
