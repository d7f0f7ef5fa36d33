// A worker and the routers of its cluster: all are dialled, one stream each, as names say now.
#include "proto/router_streams.h"

#include <catch2/catch.hpp>
#include <condition_variable>
#include <map>
#include <mutex>

#include "absl/cleanup/cleanup.h"
#include "tests/support/control_ends.h"

namespace baton {
namespace {

constexpr Incarnation kWorker = 5;
constexpr absl::Duration kMoment = absl::Milliseconds(300);

// Answers in place of a name server.
class Names {
 public:
  void Set(std::vector<std::string> addresses) {
    std::lock_guard lock(mutex_);
    addresses_ = std::move(addresses);
  }
  void SetBroken(bool broken) {
    std::lock_guard lock(mutex_);
    broken_ = broken;
  }
  void SetHanging(bool hanging) {
    std::lock_guard lock(mutex_);
    hanging_ = hanging;
    changed_.notify_all();
  }
  absl::StatusOr<std::vector<std::string>> Get() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !hanging_; });
    if (broken_) return absl::UnavailableError("no name server");
    return addresses_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> addresses_;
  bool broken_ = false, hanging_ = false;
  std::condition_variable changed_;
};

struct Worker {
  explicit Worker(std::vector<std::string> addresses, Names* names = nullptr) {
    RouterStreamsOptions options{.addresses = std::move(addresses),
                                 .client = {},
                                 .resolve_interval = absl::Milliseconds(20)};
    options.client.announce = TestAnnounce(kWorker);
    options.client.on_event = [this](RouterEvent event) {
      if (const auto* connected = std::get_if<RouterConnected>(&event)) {
        std::lock_guard lock(mutex);
        stream_of[connected->router] = connected->stream;
      }
      events.Add(std::move(event));
      return true;
    };
    if (names != nullptr) options.resolve = [names](const std::string&) { return names->Get(); };
    streams = std::make_unique<RouterStreams>(std::move(options));
  }
  bool Send(RouterId router, const WorkerReport& report) {
    std::lock_guard lock(mutex);
    return streams->Send(stream_of[router], report);
  }

  EventQueue<RouterEvent> events;
  std::mutex mutex;
  std::map<RouterId, uint64_t> stream_of;  // the newest; guarded by mutex
  std::unique_ptr<RouterStreams> streams;
};

RouterEnd Router(RouterId id) {
  ControlServerOptions options;
  options.router = id;
  return RouterEnd(options);
}

WorkerReport TokenOf(RouterId router, uint64_t serial) {
  return {.events = {TokenOut{.request_id = MakeRequestId(router, serial), .position = 7}}};
}

}  // namespace

TEST_CASE("a list of routers, names among them, is read and refused by the setting's name") {
  const auto all = ParseRouterAddresses("10.0.0.1:7001, [::1]:7001,unix:/run/baton,routers:7001");
  REQUIRE(all.ok());
  CHECK(*all ==
        std::vector<std::string>{"10.0.0.1:7001", "[::1]:7001", "unix:/run/baton", "routers:7001"});
  const bool named[] = {false, false, false, true};
  for (size_t i = 0; i < 4; ++i) CHECK(IsNamedAddress((*all)[i]) == named[i]);
  for (const char* bad : {"", "10.0.0.1", "10.0.0.1:7001,", ":7001", "routers:0", "routers:70001",
                          "::1:7001", "[::1:7001"}) {
    CAPTURE(bad);
    const auto refused = ParseRouterAddresses(bad);
    CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(refused.status().message()).find("cluster.router") == 0);
  }
}

TEST_CASE("the system's resolver gives numbers, and names an unknown name") {
  const auto found = ResolveAddress("localhost:7001");
  REQUIRE(found.ok());
  CHECK(std::find(found->begin(), found->end(), "127.0.0.1:7001") != found->end());
  const auto unknown = ResolveAddress("no-such-host.invalid:7001");
  CHECK(unknown.status().code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(unknown.status().message()).find("no-such-host.invalid") != std::string::npos);
}

TEST_CASE("every router is dialled, and each gets what is for it") {
  RouterEnd first = Router(1), second = Router(2);
  Worker worker({first.address(), second.address()});
  first.AwaitWorker(kWorker);
  second.AwaitWorker(kWorker);
  std::vector<RouterId> connected;
  for (int i = 0; i < 2; ++i) connected.push_back(worker.events.Next<RouterConnected>()->router);
  std::sort(connected.begin(), connected.end());
  CHECK(connected == std::vector<RouterId>{1, 2});

  REQUIRE(worker.Send(2, TokenOf(2, 9)));
  REQUIRE(second.Next<WorkerReported>().has_value());
  CHECK_FALSE(first.NextAny(kMoment).has_value());
  CHECK_FALSE(worker.Send(3, TokenOf(3, 9)));
  first.server->Send(kWorker, {CancelRequest{.request_id = MakeRequestId(1, 4)}});
  const auto messages = worker.events.Next<RouterMessages>();
  REQUIRE(messages.has_value());
  CHECK(messages->router == 1);

  // One goes away, the other one hears and says on.
  first.server->Shutdown();
  const auto lost = worker.events.Next<RouterDisconnected>();
  REQUIRE(lost.has_value());
  CHECK(lost->router == 1);
  REQUIRE(worker.Send(2, TokenOf(2, 10)));
  CHECK(second.Next<WorkerReported>().has_value());
}

TEST_CASE("a router that has several addresses has one stream, and keeps it") {
  RouterEnd router = Router(1);
  const std::string port = std::to_string(router.server->port());
  Worker worker({"127.0.0.1:" + port, "127.0.0.1:0" + port, "localhost:" + port});
  router.AwaitWorker(kWorker);
  CHECK_FALSE(router.NextAny(2 * kMoment).has_value());  // neither WorkerLost nor another stream
  CHECK(worker.events.Next<RouterConnected>().has_value());
  CHECK(worker.events.size() == 0);
}

TEST_CASE("a message about another router's request ends the stream of who sent it") {
  RouterEnd router = Router(1);
  Worker worker({router.address()});
  router.AwaitWorker(kWorker);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  router.server->Send(kWorker, {CancelRequest{.request_id = MakeRequestId(2, 4)}});
  const auto lost = worker.events.Next<RouterDisconnected>();
  REQUIRE(lost.has_value());
  CHECK(std::string(lost->reason.message()).find("another router") != std::string::npos);
}

TEST_CASE("routers that a name comes to stand for are dialled, and those that leave it no more") {
  RouterEnd first = Router(1);
  std::optional<RouterEnd> second(std::in_place, [] {
    ControlServerOptions options;
    options.router = 2;
    return options;
  }());
  Names names;
  names.SetBroken(true);
  Worker worker({"routers:7001"}, &names);
  CHECK_FALSE(worker.events.NextAny(kMoment).has_value());
  names.Set({first.address()});
  names.SetBroken(false);
  first.AwaitWorker(kWorker);
  CHECK(worker.events.Next<RouterConnected>()->router == 1);
  names.Set({first.address(), second->address()});
  second->AwaitWorker(kWorker);
  CHECK(worker.events.Next<RouterConnected>()->router == 2);

  // A stream whose address is gone goes on to its own end.
  names.Set({first.address()});
  REQUIRE(worker.Send(2, TokenOf(2, 9)));
  REQUIRE(second->Next<WorkerReported>().has_value());
  CHECK_FALSE(worker.events.NextAny(kMoment).has_value());
  ControlServerOptions again;
  again.address = second->address();
  again.router = 3;
  second.reset();
  CHECK(worker.events.Next<RouterDisconnected>()->router == 2);
  RouterEnd third(again);  // at the same address, which nobody names
  CHECK_FALSE(third.NextAny(absl::Milliseconds(1500)).has_value());
  names.Set({first.address(), third.address()});
  third.AwaitWorker(kWorker);
  CHECK(worker.events.Next<RouterConnected>()->router == 3);

  // A name server that does not answer changes nothing.
  names.SetBroken(true);
  CHECK_FALSE(worker.events.NextAny(kMoment).has_value());
  REQUIRE(worker.Send(1, TokenOf(1, 10)));
  CHECK(first.Next<WorkerReported>().has_value());
}

TEST_CASE("a name server that hangs holds up neither other routers nor their streams") {
  RouterEnd first = Router(1), second = Router(2);
  Names names;
  names.Set({second.address()});
  names.SetHanging(true);
  Worker worker({"routers:7001", first.address()}, &names);
  const absl::Cleanup answers = [&] { names.SetHanging(false); };  // whatever fails, it ends
  first.AwaitWorker(kWorker);
  CHECK(worker.events.Next<RouterConnected>()->router == 1);
  REQUIRE(worker.Send(1, TokenOf(1, 10)));
  CHECK(first.Next<WorkerReported>().has_value());

  names.SetHanging(false);
  second.AwaitWorker(kWorker);
  CHECK(worker.events.Next<RouterConnected>()->router == 2);
  names.SetHanging(true);  // it hangs again
  REQUIRE(worker.Send(2, TokenOf(2, 11)));
  CHECK(second.Next<WorkerReported>().has_value());
}

}  // namespace baton
