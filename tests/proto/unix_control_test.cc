// Control streams over Unix sockets: both ends talk, come back after a new start, and speak to
// processes of their own user and root alone.
#include "proto/unix_control.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "tests/support/control_ends.h"
#include "tests/support/raw_client.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

using Catch::Contains;

struct Socket {
  const TempFolder folder;
  const std::string path = folder.file("control"), address = "unix:" + path;

  ControlServerOptions Options(std::atomic<int>* n_others = nullptr) const {
    ControlServerOptions options;
    options.address = address;
    if (n_others != nullptr)
      options.on_refused = [n_others](JoinFault fault) {
        *n_others += fault == JoinFault::kOtherUser;
      };
    return options;
  }
};

TEST_CASE("workers join over a Unix socket that its user alone may open") {
  const Socket socket;
  RouterEnd router(socket.Options());
  CHECK(router.server->port() == 0);
  struct stat about {};
  REQUIRE(::stat(socket.path.c_str(), &about) == 0);
  CHECK((about.st_mode & 07777) == 0600);
  WorkerEnd worker(socket.address, 5);
  router.AwaitWorker(5);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  WorkerEnd second(socket.address, 6);
  router.AwaitWorker(6);
  CheckTalks(&router, &worker, 5);
  REQUIRE(second.events.Next<RouterConnected>().has_value());
  CheckTalks(&router, &second, 6);
}

TEST_CASE("a router that starts again is dialled anew, and one with another key stays out") {
  const Socket socket;
  ControlServerOptions other = socket.Options();
  other.key[3] = 1;
  WorkerEnd worker(socket.address, 5);  // before there is a router
  {
    RouterEnd stranger(other);
    CHECK_FALSE(stranger.NextAny(absl::Milliseconds(300)).has_value());
  }
  CHECK(::access(socket.path.c_str(), F_OK) != 0);
  for (int life = 0; life < 2; ++life) {
    RouterEnd router(socket.Options());
    router.AwaitWorker(5);
    REQUIRE(worker.events.Next<RouterConnected>().has_value());
    router.server->Shutdown();
    REQUIRE(worker.events.Next<RouterDisconnected>().has_value());
  }
}

TEST_CASE("a socket that a killed router left is replaced, one in use is not") {
  const Socket socket;
  const pid_t killed = ::fork();
  if (killed == 0) {
    const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    std::memcpy(place.sun_path, socket.path.data(), socket.path.size());
    ::_exit(::bind(left, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0 &&
                    ::listen(left, 1) == 0
                ? 0
                : 1);
  }
  int status = 1;
  REQUIRE(::waitpid(killed, &status, 0) == killed);
  REQUIRE(status == 0);
  REQUIRE(::access(socket.path.c_str(), F_OK) == 0);
  RouterEnd router(socket.Options());
  const auto second = ControlServer::Start(socket.Options());
  CHECK_THAT(std::string(second.status().message()), Contains(socket.path) && Contains("in use"));
  WorkerEnd worker(socket.address, 5);
  router.AwaitWorker(5);
}

TEST_CASE("addresses that are no socket's, and certificates beside one, are refused") {
  const Socket socket;
  ControlServerOptions options = socket.Options();
  options.address = "unix:" + std::string(200, 'x');
  CHECK_THAT(std::string(ControlServer::Start(options).status().message()), Contains("1 to 107"));
  options.address = "unix:" + socket.folder.file("no/folder");
  CHECK_THAT(std::string(ControlServer::Start(options).status().message()),
             Contains("No such file"));
  CHECK(DialUnixControl(socket.address).status().code() == absl::StatusCode::kUnavailable);
  CHECK(IsUnixAddress("unix:/a"));
  CHECK_FALSE(IsUnixAddress("127.0.0.1:1"));
}

TEST_CASE("processes of other users are refused and counted, whoever they say they are") {
  CHECK(IsTrustedUser(1000, 1000));
  CHECK(IsTrustedUser(0, 1000));
  CHECK_FALSE(IsTrustedUser(1001, 1000));
  CHECK_FALSE(IsTrustedUser(1000, 0));
  CHECK_FALSE(IsTrustedUser(static_cast<uid_t>(-1), 0));
  if (::geteuid() != 0) {
    WARN("only root can be two users: the sockets themselves were not tried");
    return;
  }
  const Socket socket;
  std::atomic<int> n_others = 0;
  RouterEnd router(socket.Options(&n_others));
  constexpr uid_t kNobody = 65534;
  // As if somebody had opened folder and socket to all.
  REQUIRE(::chmod(socket.folder.file(".").c_str(), 0777) == 0);
  REQUIRE(::chmod(socket.path.c_str(), 0666) == 0);
  const pid_t other = ::fork();
  if (other == 0) {
    if (::setuid(kNobody) != 0) ::_exit(2);
    RawClient client(socket.path);
    if (!client.is_open()) ::_exit(3);
    ::_exit(client.ReadToEnd(absl::Seconds(10)) && client.received.empty() ? 0 : 4);
  }
  int status = 1;
  REQUIRE(::waitpid(other, &status, 0) == other);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(n_others == 1);
  // Dialling looks at the user who listens, too.
  WorkerEnd worker(socket.address, 5);
  router.AwaitWorker(5);
  const std::string foreign = socket.folder.file("foreign");
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t listener = ::fork();
  if (listener == 0) {
    if (::setuid(kNobody) != 0) ::_exit(2);
    const int place = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, foreign.data(), foreign.size());
    if (::bind(place, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ::_exit(3);
    ::listen(place, 1);
    static_cast<void>(::write(ready[1], "x", 1));
    ::pause();
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  const auto dialled = DialUnixControl("unix:" + foreign);
  CHECK(dialled.status().code() == absl::StatusCode::kPermissionDenied);
  CHECK_THAT(std::string(dialled.status().message()), Contains("65534"));
  ::kill(listener, SIGKILL);
  ::waitpid(listener, nullptr, 0);
}

}  // namespace
}  // namespace baton
