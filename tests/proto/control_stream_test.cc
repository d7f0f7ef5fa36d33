// Both ends of the control stream against each other over loopback, and against processes that die
// or stop.
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/control_ends.h"

namespace baton {
namespace {

using Catch::Contains;

WorkerReport TokenReport(RequestId request, int32_t position) {
  return {.events = {TokenOut{.request_id = request, .epoch = 1, .position = position}}};
}

void WaitUntil(auto condition) {
  const absl::Time end = absl::Now() + absl::Seconds(10);
  while (!condition() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
  REQUIRE(condition());
}

}  // namespace

TEST_CASE("the announcement comes first, then both directions in order") {
  RouterEnd router;
  WorkerEnd worker(router.address(), 5);
  router.AwaitWorker(5);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  for (int i = 1; i <= 50; ++i) REQUIRE(worker.Send(TokenReport(9, i)));
  for (int next = 1; next <= 50;) {
    const auto reported = router.Next<WorkerReported>();
    REQUIRE(reported.has_value());
    CHECK(reported->worker == 5);
    for (const WorkerEvent& event : reported->report.events)
      CHECK(std::get<TokenOut>(event).position == next++);
  }
  for (Epoch i = 1; i <= 50; ++i) router.server->Send(5, {CancelRequest{.epoch = i}});
  for (Epoch next = 1; next <= 50;) {
    const auto got = worker.events.Next<RouterMessages>();
    REQUIRE(got.has_value());
    for (const RouterMessage& message : got->messages)
      CHECK(std::get<CancelRequest>(message).epoch == next++);
  }
}

TEST_CASE("100,000 tokens arrive in order, many to a message") {
  RouterEnd router;
  WorkerEnd worker(router.address(), 5);
  router.AwaitWorker(5);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  constexpr int kTokens = 100000, kRows = 32;
  std::thread engine([&] {
    for (int i = 0; i < kTokens;) {
      WorkerReport step;
      for (int row = 0; row < kRows; ++row)
        step.events.push_back(TokenOut{.request_id = 1, .epoch = 1, .position = ++i});
      while (!worker.Send(step)) std::this_thread::yield();
    }
  });
  int next = 1, messages = 0;
  const absl::Time start = absl::Now();
  while (next <= kTokens) {
    const auto reported = router.Next<WorkerReported>();
    if (!reported.has_value()) break;
    ++messages;
    for (const WorkerEvent& event : reported->report.events)
      if (std::get<TokenOut>(event).position == next) ++next;
  }
  engine.join();
  CHECK(next == kTokens + 1);
  CHECK(messages <= kTokens / kRows);
  WARN("100000 tokens in " << absl::FormatDuration(absl::Now() - start) << ", " << messages
                           << " messages");
}

TEST_CASE("a message about a request that cannot be read ends that request, and not the stream") {
  RouterEnd router;
  WorkerEnd worker(router.address(), 5);
  router.AwaitWorker(5);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  DecodeRequest poison{.request_id = 7, .epoch = 2, .tokens = {1}, .max_tokens = 1};
  poison.stop_tokens.assign(100000, 1);
  router.server->Send(5, {CancelRequest{.request_id = 1}, poison, CancelRequest{.request_id = 2}});
  const auto got = worker.events.Next<RouterMessages>();
  REQUIRE(got.has_value());
  REQUIRE(got->messages.size() == 2);
  CHECK(std::get<CancelRequest>(got->messages[0]).request_id == 1);
  CHECK(std::get<CancelRequest>(got->messages[1]).request_id == 2);
  const auto reported = router.Next<WorkerReported>();
  REQUIRE(reported.has_value());
  REQUIRE(reported->report.events.size() == 1);
  const auto& ended = std::get<PartEnded>(reported->report.events[0]);
  CHECK(ended.request_id == 7);
  CHECK(ended.epoch == 2);
  CHECK_FALSE(ended.was_prefill);
  CHECK(ended.reason == EndReason::kFailed);
  CHECK(ended.fault == PartFault::kUnreadable);
  CHECK_THAT(ended.message, Contains("decode.stop_tokens"));
  // The stream still works in both directions.
  router.server->Send(5, {poison});
  CHECK(router.Next<WorkerReported>().has_value());
  CHECK(worker.events.size() == 0);
}

TEST_CASE("another cluster's worker is refused, and sees no router") {
  RouterEnd router({.key = {1}});
  WorkerEnd stranger(router.address(), 5, [](ControlClientOptions* o) { o->key = {2}; });
  CHECK_FALSE(router.Next<WorkerConnected>(absl::Milliseconds(300)).has_value());
  CHECK(stranger.events.size() == 0);
  CHECK_FALSE(stranger.Send(TokenReport(1, 1)));
  WorkerEnd member(router.address(), 6, [](ControlClientOptions* o) { o->key = {1}; });
  router.AwaitWorker(6);
}

TEST_CASE("a worker finds the router whenever it comes, and announces itself to each") {
  int port = 0;
  {
    RouterEnd picks_port;
    port = picks_port.server->port();
  }
  WorkerEnd worker(absl::StrCat("127.0.0.1:", port), 5);  // no server yet
  for (int life = 0; life < 3; ++life) {
    RouterEnd router({.address = absl::StrCat("127.0.0.1:", port)});
    router.AwaitWorker(5);
    REQUIRE(worker.events.Next<RouterConnected>().has_value());
    router.server->Shutdown();
    const auto lost = worker.events.Next<RouterDisconnected>();
    REQUIRE(lost.has_value());
    CHECK_THAT(std::string(lost->reason.message()), Contains("shutting down"));
    CHECK_FALSE(worker.Send(TokenReport(1, 1)));
  }
}

TEST_CASE("a report for a stream that has ended never reaches the next one") {
  RouterEnd router;
  WorkerEnd worker(router.address(), 5);
  router.AwaitWorker(5);
  const auto first = worker.events.Next<RouterConnected>();
  REQUIRE(first.has_value());
  router.server->Close(5, absl::UnavailableError("a test"));
  REQUIRE(worker.events.Next<RouterDisconnected>().has_value());
  const auto second = worker.events.Next<RouterConnected>();
  REQUIRE(second.has_value());
  CHECK(second->stream != first->stream);
  CHECK_FALSE(worker.client->Send(first->stream, TokenReport(1, 1)));
  CHECK(worker.client->Send(second->stream, TokenReport(1, 2)));
  std::vector<int32_t> positions;
  while (positions.empty()) {
    const auto event = router.NextAny();
    REQUIRE(event.has_value());
    if (const auto* reported = std::get_if<WorkerReported>(&*event))
      for (const WorkerEvent& told : reported->report.events)
        if (const auto* token = std::get_if<TokenOut>(&told)) positions.push_back(token->position);
  }
  CHECK(positions == std::vector<int32_t>{2});
}

TEST_CASE("a worker that dials again replaces its old stream") {
  RouterEnd router;
  WorkerEnd old_life(router.address(), 5,
                     [](ControlClientOptions* o) { o->min_pause = absl::Hours(1); });
  router.AwaitWorker(5);
  WorkerEnd new_life(router.address(), 5);
  const auto lost = router.Next<WorkerLost>();
  REQUIRE(lost.has_value());
  CHECK(lost->worker == 5);
  router.AwaitWorker(5);
  REQUIRE(old_life.events.Next<RouterConnected>().has_value());
  REQUIRE(old_life.events.Next<RouterDisconnected>().has_value());
  REQUIRE(new_life.events.Next<RouterConnected>().has_value());
  router.server->Send(5, {TellPages{}});
  CHECK(new_life.events.Next<RouterMessages>().has_value());
  CHECK(old_life.events.size() == 0);
}

TEST_CASE("messages for a stream whose end was not seen yet never reach the next one") {
  RouterEnd router;
  auto worker = std::make_unique<WorkerEnd>(router.address(), 5);
  router.AwaitWorker(5);
  worker.reset();
  WorkerEnd again(router.address(), 5);
  REQUIRE(again.events.Next<RouterConnected>().has_value());
  // WorkerLost and WorkerConnected wait in the queue: this message is for the old stream.
  router.server->Send(5, {CancelRequest{.request_id = 1}});
  REQUIRE(router.Next<WorkerLost>().has_value());
  router.AwaitWorker(5);
  router.server->Send(5, {CancelRequest{.request_id = 2}});
  const auto got = again.events.Next<RouterMessages>();
  REQUIRE(got.has_value());
  CHECK(std::get<CancelRequest>(got->messages.at(0)).request_id == 2);
}

TEST_CASE("a stream closed with a reason: the worker reads it") {
  RouterEnd router;
  WorkerEnd worker(router.address(), 5);
  router.AwaitWorker(5);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  router.server->Close(5, absl::FailedPreconditionError("numerics_id differs"));
  REQUIRE(router.Next<WorkerLost>().has_value());
  const auto lost = worker.events.Next<RouterDisconnected>();
  REQUIRE(lost.has_value());
  CHECK(lost->reason == absl::FailedPreconditionError("numerics_id differs"));
}

TEST_CASE("a report out of range closes the stream and names the field; other workers serve on") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const std::pair<WorkerEvent, std::string> cases[] = {
      {TokenOut{.position = 1, .token = -1}, "token.token"},
      {WorkerLoad{.prefill_cost = {.token = kNan}}, "load.prefill_cost.token is nan"},
      {WorkerLoad{.prefill_queued_tokens = -1}, "load.prefill_queued_tokens is -1"},
      {WorkerLoad{.prefill_queued_pairs = kInfinite}, "load.prefill_queued_pairs is inf"},
      {WorkerLoad{.links = {{.peer = 6, .bytes_per_second = kInfinite}}},
       "load.links.bytes_per_second is inf"},
      {CachedPages{.number = 0}, "cached_pages.number is missing"},
  };
  RouterEnd router;
  WorkerEnd other(router.address(), 6);
  router.AwaitWorker(6);
  REQUIRE(other.events.Next<RouterConnected>().has_value());
  for (const auto& [event, field] : cases) {
    CAPTURE(field);
    WorkerEnd worker(router.address(), 5,
                     [](ControlClientOptions* o) { o->min_pause = absl::Hours(1); });
    router.AwaitWorker(5);
    REQUIRE(worker.events.Next<RouterConnected>().has_value());
    REQUIRE(worker.Send({.events = {event}}));
    const auto lost = router.Next<WorkerLost>();
    REQUIRE(lost.has_value());
    CHECK(lost->worker == 5);
    CHECK_THAT(std::string(lost->reason.message()), Contains(field));
    CHECK(worker.events.Next<RouterDisconnected>()->reason == lost->reason);
  }
  REQUIRE(other.Send(TokenReport(9, 7)));
  const auto reported = router.Next<WorkerReported>();
  REQUIRE(reported.has_value());
  CHECK(reported->worker == 6);
  CHECK(std::get<TokenOut>(reported->report.events.at(0)).position == 7);
}

TEST_CASE("a router that does not take reports is not flooded; the worker gives up at its bound") {
  RouterEnd router({.max_unread_reports = 4});
  WorkerEnd worker(router.address(), 5, [](ControlClientOptions* o) {
    o->max_unsent_events = 20000;
    o->min_pause = absl::Hours(1);
  });
  router.AwaitWorker(5);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  const WorkerReport big = {.events = std::vector<WorkerEvent>(1000, TokenOut{.position = 1})};
  int sent = 0;
  while (sent < 10000 && worker.Send(big)) ++sent;
  CHECK(sent < 10000);
  const auto lost = worker.events.Next<RouterDisconnected>();
  REQUIRE(lost.has_value());
  CHECK(lost->reason.code() == absl::StatusCode::kResourceExhausted);
  size_t taken = 0;
  std::vector<ControlEvent> events;
  WaitUntil([&] {  // the end of the stream comes at its turn
    router.server->TakeEvents(&events);
    return !events.empty() && std::holds_alternative<WorkerLost>(events.back());
  });
  for (const ControlEvent& event : events) taken += std::holds_alternative<WorkerReported>(event);
  CHECK(taken <= 8);  // four waiting, and what was read while they were taken
}

TEST_CASE("a worker that does not read is closed at the router's bound") {
  RouterEnd router({.max_unsent_messages = 64});
  std::mutex hold;  // held: the worker's reaction stands still
  hold.lock();
  ControlClientOptions options;
  options.router_address = router.address();
  options.announce = TestAnnounce(5);
  options.min_pause = absl::Hours(1);
  options.on_event = [&hold](const RouterEvent& event) {
    if (std::holds_alternative<RouterMessages>(event)) std::lock_guard wait(hold);
    return true;
  };
  auto client = std::make_unique<ControlClient>(std::move(options));
  router.AwaitWorker(5);
  const RouterMessage prompt =
      PrefillRequest{.tokens = std::vector<int32_t>(100000, 65535), .sampling = SamplingParams{}};
  std::optional<WorkerLost> lost;
  for (int i = 0; i < 1000 && !lost; ++i) {
    router.server->Send(5, {prompt});
    std::vector<ControlEvent> events;
    router.server->TakeEvents(&events);  // signs of life, until it is lost
    for (const ControlEvent& event : events)
      if (const auto* end = std::get_if<WorkerLost>(&event)) lost = *end;
  }
  hold.unlock();
  REQUIRE(lost.has_value());
  CHECK(lost->reason.code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("a worker whose mailbox is full drops the stream and dials again") {
  RouterEnd router;
  std::atomic<bool> full = false;
  EventQueue<RouterEvent> events;
  ControlClientOptions options;
  options.router_address = router.address();
  options.announce = TestAnnounce(5);
  options.on_event = [&](RouterEvent event) {
    if (full) return false;
    events.Add(std::move(event));
    return true;
  };
  ControlClient client(std::move(options));
  router.AwaitWorker(5);
  REQUIRE(events.Next<RouterConnected>().has_value());
  full = true;
  router.server->Send(5, {TellPages{}});
  REQUIRE(router.Next<WorkerLost>().has_value());
  CHECK(events.size() == 0);
  full = false;
  REQUIRE(events.Next<RouterDisconnected>().has_value());  // offered until taken
  router.AwaitWorker(5);
  REQUIRE(events.Next<RouterConnected>().has_value());
}

TEST_CASE("no more than max_workers") {
  RouterEnd router({.max_workers = 1});
  auto first = std::make_unique<WorkerEnd>(router.address(), 5);
  router.AwaitWorker(5);
  WorkerEnd second(router.address(), 6);
  CHECK_FALSE(router.Next<WorkerConnected>(absl::Milliseconds(200)).has_value());
  CHECK(second.events.size() == 0);
  first.reset();
  REQUIRE(router.Next<WorkerLost>().has_value());
  router.AwaitWorker(6);
}

TEST_CASE("an address that cannot be served is an error that says so") {
  RouterEnd router;
  const auto taken = ControlServer::Start({.address = router.address()});
  CHECK(taken.status().code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(taken.status().message()), Contains(router.address()));
  const auto open = ControlServer::Start({.address = "0.0.0.0:0"});
  CHECK(open.status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a killed worker is noticed at once, a stopped one by keepalive") {
  RouterEnd router;
  PeerProcess worker({"dial", std::to_string(router.server->port())});
  router.AwaitWorker(77);
  const absl::Time start = absl::Now();
  SECTION("killed") {
    worker.Kill(SIGKILL);
    REQUIRE(router.Next<WorkerLost>().has_value());
    CHECK(absl::Now() - start < absl::Seconds(3));
  }
  SECTION("stopped") {
    worker.Kill(SIGSTOP);
    REQUIRE(router.Next<WorkerLost>().has_value());
    CHECK(absl::Now() - start < absl::Seconds(7));  // 4 s on an idle machine
  }
  WARN("noticed after " << absl::FormatDuration(absl::Now() - start));
}

TEST_CASE("a worker with nothing to say gives signs of life, which tell what its engine does") {
  RouterEnd router;
  static std::atomic<int64_t> calls = 0;
  WorkerEnd worker(router.address(), 5, [](ControlClientOptions* o) {
    o->engine_turn = [] { return EngineTurn{.turns = 7, .age_us = ++calls, .expected_us = 9}; };
  });
  router.AwaitWorker(5);
  CHECK_FALSE(router.Next<WorkerLost>(absl::Seconds(2)).has_value());
  CHECK(router.n_signs_of_life >= 2);  // each 400 ms
  CHECK(router.engine.turns == 7);
  CHECK(router.engine.age_us > 1);  // as of each report
  CHECK(router.engine.expected_us == 9);
  // Reports with events tell it, too.
  const int64_t before = calls;
  REQUIRE(worker.Send({.events = {NoRoomNotice{.request_id = 1}}}));
  const auto reported = router.Next<WorkerReported>();
  REQUIRE(reported.has_value());
  CHECK(reported->report.engine.age_us > before);
}

TEST_CASE("a stopped worker whose stream was ended dials again when it goes on, the same life") {
  RouterEnd router;
  PeerProcess worker({"dial", std::to_string(router.server->port())});
  router.AwaitWorker(77);
  worker.Kill(SIGSTOP);
  router.server->Close(77, absl::UnavailableError("silent"));
  REQUIRE(router.Next<WorkerLost>().has_value());
  router.server->Send(77, {CancelRequest{.request_id = 1}});  // reaches no worker
  worker.Kill(SIGCONT);
  router.AwaitWorker(77);
}

TEST_CASE("a killed router is noticed at once, a stopped one by keepalive") {
  PeerProcess router({"serve"});
  WorkerEnd worker(absl::StrCat("127.0.0.1:", router.ReadPort()), 5);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  const absl::Time start = absl::Now();
  SECTION("killed") {
    router.Kill(SIGKILL);
    REQUIRE(worker.events.Next<RouterDisconnected>().has_value());
    CHECK(absl::Now() - start < absl::Seconds(3));
  }
  SECTION("stopped") {
    router.Kill(SIGSTOP);
    REQUIRE(worker.events.Next<RouterDisconnected>().has_value());
    CHECK(absl::Now() - start < absl::Seconds(7));  // 4 s on an idle machine
  }
  WARN("noticed after " << absl::FormatDuration(absl::Now() - start));
}

TEST_CASE("either end may leave in the middle of traffic; no thread or descriptor stays") {
  // gRPC keeps some of both, a few more on a busy machine. What stays of one kind of end in six is
  // more than that after six times as many lives.
  constexpr int kLives = 40, kSpread = 4;
  int threads = 0, descriptors = 0;
  for (int life = 0; life < kLives; ++life) {
    {
      auto router = std::make_unique<RouterEnd>();
      auto worker = std::make_unique<WorkerEnd>(router->address(), 5);
      router->AwaitWorker(5);
      REQUIRE(worker->events.Next<RouterConnected>().has_value());
      for (int i = 0; i < 200; ++i) {
        worker->Send(TokenReport(1, 1));
        router->server->Send(5, {CancelRequest{.request_id = 1}});
      }
      if (life % 2 == 0) worker.reset();
      if (life % 3 == 0) router->server->Shutdown();
    }
    if (life == 3) {  // gRPC has made what it keeps
      absl::SleepFor(absl::Milliseconds(500));
      threads = CountThreads();
      descriptors = CountDescriptors();
    }
  }
  CAPTURE(threads, descriptors);
  WaitUntil([&] {
    return CountThreads() <= threads + kSpread && CountDescriptors() <= descriptors + kSpread;
  });
}

}  // namespace baton
