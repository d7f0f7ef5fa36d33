// The signs of life of an engine thread: turns, their age, and what their steps should take.
#include "worker/engine_pulse.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <thread>

#include "common/clock.h"
#include "tests/support/late_backend.h"
#include "tests/worker/worker_fixture.h"
#include "worker/engine_thread.h"

namespace baton {
namespace {

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

// Stands still in its first step until it is told to go on.
class StandingBackend : public HashBackend {
 public:
  StandingBackend() : HashBackend(kPageTokens, kLayers) { set_limits({.max_step_tokens = 64}); }
  void RunLayers(int from, int to) override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return goes_on_; });
    }
    HashBackend::RunLayers(from, to);
  }
  void GoOn() {
    std::lock_guard lock(mutex_);
    goes_on_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool goes_on_ = false;
};

// An engine thread with a router, until the end of its scope.
struct Started {
  explicit Started(Backend* backend)
      : pool(std::move(
            *KvPool::Create(backend->kv_layout(), kPages,
                            [backend](int64_t bytes) { return backend->NewArena(bytes); }))),
        engine(Options(), WorkerFacts{.self = kSelf, .max_context = 100}, backend, pool.get(),
               WorkerPorts{.transfer = [](TransferCommand) {},
                           .report = [](uint64_t, WorkerReport) {}}) {
    backend->SetPages(pool->pages());
    engine.Start();
    REQUIRE(engine.Post(RouterConnected{}));
  }
  ~Started() {
    engine.Close();
    engine.CollectPages();
  }
  void Compute(const std::vector<int32_t>& prompt) {
    PrefillRequest request{.request_id = 1, .epoch = 1, .tokens = prompt};
    SetWhole(&request, {}, {});
    REQUIRE(engine.Post(RouterMessages{{request}}));
  }
  static WorkerCoreOptions Options() {
    WorkerCoreOptions options;
    options.decode.max_batch = 4;
    return options;
  }

  std::unique_ptr<KvPool> pool;
  EngineThread engine;
};

bool WaitUntil(const std::function<bool()>& condition) {
  for (const absl::Time end = MonotonicNow() + absl::Seconds(10); MonotonicNow() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

}  // namespace

TEST_CASE("a pulse tells the turn under way, and nothing of an engine that waits for work") {
  EnginePulse pulse;
  CHECK(pulse.Read(kStart).turns == 0);
  CHECK(pulse.Read(kStart).age_us == 0);
  pulse.Begin(kStart);
  CHECK(pulse.Read(kStart).age_us > 0);
  pulse.Expect(absl::Milliseconds(3));
  pulse.Expect(absl::Milliseconds(4));
  const EngineTurn turn = pulse.Read(kStart + absl::Seconds(2));
  CHECK(turn.turns == 1);
  CHECK(turn.age_us == 2'000'000);
  CHECK(turn.expected_us == 7'000);
  pulse.Begin(kStart + absl::Seconds(3));
  CHECK(pulse.Read(kStart + absl::Seconds(4)).turns == 2);
  CHECK(pulse.Read(kStart + absl::Seconds(4)).age_us == 1'000'000);
  CHECK(pulse.Read(kStart + absl::Seconds(4)).expected_us == 0);
  pulse.Rest();
  CHECK(pulse.Read(kStart + absl::Hours(4)).age_us == 0);
  CHECK(pulse.Read(kStart + absl::Hours(4)).turns == 2);
}

TEST_CASE("an engine stands still after its patience, or three times what its step should take") {
  const auto patience_us = [](int64_t expected_us, int64_t min_us) {
    return EngineTurn{.expected_us = expected_us}.PatienceUs(min_us);
  };
  CHECK(patience_us(0, 2'000'000) == 2'000'000);
  CHECK(patience_us(600'000, 2'000'000) == 2'000'000);
  CHECK(patience_us(1'000'000, 2'000'000) == 3'000'000);
  CHECK(patience_us(1'000'000, INT64_MAX) == INT64_MAX);
}

TEST_CASE("steps should take what steps before them took; the first ones have more time") {
  WorkerFixture w;
  w.Compute(1, Tokens(60, 3));
  REQUIRE_FALSE(w.expected.empty());
  CHECK(w.expected.front() == absl::Seconds(10));
  w.Compute(2, Tokens(60, 5));
  const absl::Duration prompt = w.expected.back();
  CHECK(prompt > absl::Microseconds(10));
  CHECK(prompt < absl::Milliseconds(10));  // of a clock that goes on 10 us when it is read
  w.Sequence();
  w.expected.clear();
  w.Turns();
  REQUIRE(w.expected.size() > 1);
  CHECK(w.expected.front() == absl::Seconds(10));  // no step with rows has been measured
  CHECK(w.expected.back() < absl::Milliseconds(10));
}

TEST_CASE("an engine thread that stands still in a step is seen by other threads") {
  StandingBackend backend;
  Started started(&backend);
  EngineThread& engine = started.engine;
  CHECK(WaitUntil([&] { return engine.turn().turns > 0 && engine.turn().age_us == 0; }));
  started.Compute(Tokens(20, 3));
  CHECK(WaitUntil([&] { return engine.turn().age_us > 50'000; }));
  const EngineTurn standing = engine.metrics().engine;
  CHECK(standing.expected_us == 10'000'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(engine.turn().turns == standing.turns);
  CHECK(engine.turn().age_us >= standing.age_us + 20'000);
  backend.GoOn();
  CHECK(WaitUntil([&] { return engine.turn().age_us == 0; }));
  CHECK(engine.turn().turns > standing.turns);
}

// Computes nothing before it is told to.
class HangingBackend : public LateBackend {
 public:
  HangingBackend() : LateBackend(MakeHash(), 2) {}
  bool reached(Fence fence) override {
    while (goes_on && has_work()) Execute();
    return LateBackend::reached(fence);
  }
  std::atomic<bool> goes_on = false;

 private:
  static std::unique_ptr<Backend> MakeHash() {
    auto hash = std::make_unique<HashBackend>(kPageTokens, kLayers);
    hash->set_limits({.max_step_tokens = 64});
    return hash;
  }
};

TEST_CASE("an engine that computes later and gets nowhere is seen, though messages come in") {
  HangingBackend backend;
  Started started(&backend);
  EngineThread& engine = started.engine;
  started.Compute(Tokens(20, 3));
  const auto poke = [&] {
    return engine.Post(RouterMessages{{CancelRequest{.request_id = 9, .epoch = 1}}});
  };
  CHECK(WaitUntil([&] { return poke() && engine.turn().age_us > 50'000; }));
  CHECK(engine.turn().expected_us >= 10'000'000);  // of a step that has not been measured
  backend.goes_on = true;
  CHECK(WaitUntil([&] { return poke() && engine.turn().age_us < 50'000; }));
}

}  // namespace baton
