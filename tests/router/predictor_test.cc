// The predictor on a membership and a ledger that the test writes by hand.
#include "router/predictor.h"

#include <catch2/catch.hpp>

#include "tests/support/router_harness.h"

namespace baton {
namespace {

constexpr Incarnation kDecode = 1;  // below prefill workers, as relays need it
const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);
constexpr AttemptSpec kSpec{.n_prompt = 100, .max_tokens = 10, .may_relay = true};

struct PredictorFixture {
  explicit PredictorFixture(RelayRules rules = {})
      : predictor(std::move(rules), true, members, ledger, broken_links) {
    for (const Incarnation worker : {kP1, kP2}) Join(Announce(worker, Role::kPrefill));
    Join(Announce(kDecode, Role::kDecode));
  }
  void Join(const WorkerAnnounce& worker) { REQUIRE(members.Join(worker, kNow).ok()); }
  void Reserve(RequestId request, Incarnation prefill, const AttemptSpec& spec = kSpec) {
    ledger.Reserve(request, {.slices = {{prefill, spec.n_prompt}}, .decode = kDecode}, spec, 16,
                   kNow);
  }
  void Load(Incarnation worker, const WorkerLoad& load, absl::Duration after = absl::Seconds(1)) {
    members.OnLoad(worker, load, kNow + after);
    ledger.OnQueued(worker, load.prefill_queued_tokens, kNow + after - absl::Milliseconds(50));
  }
  Plan Choose(const AttemptSpec& spec = kSpec, const std::vector<Incarnation>& avoid = {}) const {
    const std::optional<Plan> plan = predictor.Choose(spec, avoid, kNow);
    REQUIRE(plan);
    return *plan;
  }
  Candidate At(Incarnation worker, const AttemptSpec& spec = kSpec) const {
    for (const Candidate& candidate : predictor.Candidates(spec, {}, kNow))
      if (candidate.worker == worker) return candidate;
    FAIL("no candidate");
    return {};
  }

  Membership members{nullptr, absl::Seconds(2), nullptr};
  Ledger ledger;
  BrokenLinks broken_links;
  Predictor predictor;
};

// Both prefill workers compute 1,000 tokens per second.
struct Measured : PredictorFixture {
  explicit Measured(RelayRules rules = {}) : PredictorFixture(std::move(rules)) {
    for (const Incarnation worker : {kP1, kP2}) Load(worker, MeasuredLoad(1000));
  }
};

}  // namespace

TEST_CASE("a worker that has measured nothing is taken to be like the fastest one") {
  PredictorFixture f;
  CHECK(f.At(kP1).prompt_seconds == Approx(0.1));  // nobody has: 1,000 tokens per second
  f.Load(kP1, MeasuredLoad(2000));
  CHECK(f.At(kP2).prompt_seconds == Approx(0.05));
  f.Load(kDecode, MeasuredLoad(10'000));
  CHECK(f.At(kP2).prompt_seconds == Approx(0.01));
  CHECK(f.At(kP1).prompt_seconds == Approx(0.05));
  CHECK(f.At(kDecode).step_seconds == Approx(0.02));
  CHECK(f.At(kDecode).decode_seconds == Approx(9 * 0.02));
  f.Load(kP1, {.step_cost = {.base = 5e-3}});
  CHECK(f.At(kDecode).step_seconds == Approx(0.005));
}

TEST_CASE("before its first report a worker has the layers and KV bytes that it announced") {
  PredictorFixture f;
  WorkerAnnounce newcomer = Announce(77, Role::kPrefill);
  newcomer.prefill_cost = {.n_layers = 4, .kv_bytes = 2048};
  f.Join(newcomer);
  CHECK(f.At(77).cost == PrefillCost{.n_layers = 4, .token = 2.5e-4, .kv_bytes = 2048});
}

TEST_CASE("before a prompt go those that are not longer; the longer ones are passed") {
  Measured f;
  f.Reserve(1, kP1, {.n_prompt = 50, .max_tokens = 10});
  f.Reserve(2, kP1, {.n_prompt = 300, .max_tokens = 10});
  const Candidate worker = f.At(kP1);
  CHECK(worker.ahead_seconds == Approx(0.05));
  CHECK(worker.passed == 1);
  CHECK(worker.prompt_seconds == Approx(0.1));
  CHECK(worker.prompt_delay_seconds == Approx(0.1));
  CHECK(f.At(kP2).prompt_delay_seconds == 0);
}

TEST_CASE("a prompt ahead that stays here is a row by the time of the next one, which it slows") {
  PredictorFixture f;
  WorkerAnnounce both = Announce(7, Role::kBoth);
  both.itl_stretch = 1.5;
  f.Join(both);
  WorkerLoad load = MeasuredLoad(1000);
  load.step_cost = {.base = 0.020};  // a step beside rows has 10 ms for prompts
  f.Load(7, load);
  const AttemptSpec ahead{.n_prompt = 50, .max_tokens = 1000};
  CHECK(f.At(7).prompt_seconds == Approx(0.1));
  f.ledger.Reserve(1, {.slices = {{7, 50}}, .decode = kDecode}, ahead, 16, kNow);
  CHECK(f.At(7).ahead_seconds == Approx(0.05));
  CHECK(f.At(7).prompt_seconds == Approx(0.1));  // its row is elsewhere
  f.ledger.Release(1, {.slices = {{7, 50}}, .decode = kDecode});
  f.ledger.Reserve(1, {.slices = {{7, 50}}, .decode = 7}, ahead, 16, kNow);
  CHECK(f.At(7).ahead_seconds == Approx(0.05));
  CHECK(f.At(7).prompt_seconds == Approx(10 * 0.020 + 0.1));
}

TEST_CASE("a report shortens the queue, but not by parts that it may not have seen") {
  PredictorFixture f;
  f.Reserve(1, kP1);
  WorkerLoad load = MeasuredLoad(1000);
  load.prefill_queued_tokens = 30;
  f.Load(kP1, load, absl::Milliseconds(20));
  CHECK(f.At(kP1).ahead_seconds == Approx(0.1));
  f.Load(kP1, load, absl::Seconds(1));
  CHECK(f.At(kP1).ahead_seconds == Approx(0.03));
  load.prefill_queued_tokens = 5000;  // never more than the ledger
  f.Load(kP1, load, absl::Seconds(1));
  CHECK(f.At(kP1).ahead_seconds == Approx(0.1));
}

TEST_CASE("of a long prompt that is nearly computed a shorter one awaits the rest") {
  PredictorFixture f;
  f.Reserve(1, kP1, {.n_prompt = 300, .max_tokens = 10});
  f.Reserve(2, kP1, {.n_prompt = 600, .max_tokens = 10});
  WorkerLoad load = MeasuredLoad(1000);
  load.prefill_queued_tokens = 660;  // 60 of the shorter one
  f.Load(kP1, load);
  CHECK(f.At(kP1).ahead_seconds == Approx(0.06));
  CHECK(f.At(kP1).passed == 2);     // longer as a whole
  load.prefill_queued_tokens = 90;  // of the other one
  f.Load(kP1, load);
  CHECK(f.At(kP1).ahead_seconds == Approx(0.09));
  CHECK(f.At(kP1).passed == 1);
}

TEST_CASE("shorter prompts that come later are in what is told of a plan, not in its score") {
  PredictorFixture f;
  f.Load(kP1, MeasuredLoad(1000));
  const AttemptSpec shorter{.n_prompt = 40, .max_tokens = 10};
  const double before = f.Choose().score;
  CHECK(f.Choose().passed_seconds == 0);
  for (RequestId request = 1; request <= 100; ++request) {  // 4 s of work, of which 20 s tell
    f.Reserve(request, kP1, shorter);
    f.Reserve(1000 + request, kP2, {.n_prompt = 1000, .max_tokens = 10});
    for (const Incarnation worker : {kP1, kP2})
      f.ledger.OnPrefillComputed(worker, worker == kP1 ? request : 1000 + request);
    f.ledger.Release(request, {.slices = {{kP1, 40}}, .decode = kDecode});
    f.ledger.Release(1000 + request, {.slices = {{kP2, 1000}}, .decode = kDecode});
  }
  const Plan on_one = f.Choose(kSpec, {kP2}), on_two = f.Choose(kSpec, {kP1});
  CHECK(on_one.score == Approx(before));
  CHECK(on_one.passed_seconds == Approx(0.1 * .2 / (1 - .2)));
  CHECK(on_two.passed_seconds == 0);  // longer ones do not pass it
}

TEST_CASE(
    "what the time between tokens lacked is in the next one that is told, not in the choice") {
  Measured f;
  WorkerLoad load = MeasuredLoad(1000);
  load.step_cost = {.base = 1e-3};
  f.Load(kDecode, load);
  const Plan first = f.Choose();
  CHECK(first.gap_seconds == Approx(1e-3));
  CHECK(first.gap_offset_seconds == 0);
  for (int i = 0; i < 2; ++i) f.predictor.OnGaps(first, 1.5e-3);
  CHECK(f.Choose().gap_offset_seconds == Approx(.5e-3));
  CHECK(f.Choose().score == Approx(first.score));
}

TEST_CASE("a decode worker without room makes wait, by the ledger or by its word") {
  PredictorFixture f;
  f.Load(kDecode, {.step_cost = {.base = 1e-2}});
  CHECK(f.At(kDecode).room_wait_seconds == 0);
  f.members.OnNoRoom(kDecode, 5, absl::Milliseconds(700), kNow);
  CHECK(f.At(kDecode).room_wait_seconds == Approx(0.7));
  f.Load(kDecode, {.pages_free = 4, .step_cost = {.base = 1e-2}});
  CHECK(f.At(kDecode).room_wait_seconds == Approx(0.7));
  f.Load(kDecode, {.pages_free = 5, .step_cost = {.base = 1e-2}});  // the word proves wrong
  CHECK(f.At(kDecode).room_wait_seconds == 0);
  for (RequestId request = 1; request <= 8; ++request) f.Reserve(request, kP1);  // max_batch
  CHECK(f.At(kDecode).room_wait_seconds == Approx(0.1));  // ten tokens of the shortest
  f.ledger.OnTokensLeft(kDecode, 5, 2);
  CHECK(f.At(kDecode).room_wait_seconds == Approx(0.02));
  f.ledger.Release(3, {.slices = {{kP1, 100}}, .decode = kDecode});
  CHECK(f.At(kDecode).room_wait_seconds == 0);
}

// A step of one row takes 10 ms, of each more 1 ms; prompts have a quarter of that time beside
// rows, where they take twice as long as in steps of their own (1,000 tokens per second).
TEST_CASE(
    "beside rows a prompt takes longer, and makes rows wait; rows add to each other's steps") {
  Measured f;
  const StepCost step{.base = 9e-3, .row = 1e-3, .key = 0, .beside = 2};
  WorkerAnnounce about = Announce(77, Role::kDecode);
  about.itl_stretch = 1.25;
  f.Join(about);
  WorkerLoad load = MeasuredLoad(1000);
  load.step_cost = step;
  f.Load(77, load);
  CHECK(f.At(77).prompt_seconds == Approx(0.1));
  CHECK(f.At(77).prompt_delay_seconds == 0);
  CHECK(f.At(77).decode_seconds == Approx(9 * 10e-3));
  const auto hold = [&](RequestId request, int32_t max_tokens, int32_t made) {
    f.ledger.Reserve(request, {.slices = {{kP1, 100}}, .decode = 77},
                     {.n_prompt = 100, .max_tokens = max_tokens}, 16, kNow);
    f.ledger.OnTokensLeft(77, request, max_tokens - made);
  };
  hold(1, 1000, 1);
  // Each step of 12.5 ms has 2.5 ms for the prompt, in which 1.25 ms of its work are done: 80
  // steps.
  CHECK(f.At(77).prompt_seconds == Approx(80 * 12.5e-3));
  CHECK(f.At(77).prompt_delay_seconds == Approx(0.2));
  CHECK(f.At(77).decode_seconds == Approx(9 * 11e-3));
  CHECK(f.At(77).row_delay_seconds == Approx(9 * 1e-3));
  hold(2, 1000, 1);
  CHECK(f.At(77).prompt_delay_seconds == Approx(0.4));
  CHECK(f.At(77).row_delay_seconds == Approx(2 * 9 * 1e-3));
  f.ledger.Release(2, {.slices = {{kP1, 100}}, .decode = 77});
  // A row that ends soon: the rest is as fast as without it.
  CHECK(f.At(77, {.n_prompt = 1, .max_tokens = 10}).prompt_seconds ==
        Approx(10e-3 + 2e-3));                    // a step of its own
  CHECK(f.At(77).ahead_seconds == Approx(5e-3));  // half of the one under way
  // Cached pages are held for a promise between two steps.
  CHECK(f.At(77).room_wait_seconds == 0);
  const AttemptSpec next_turn{.n_prompt = 100, .max_tokens = 10, .cached = {{77, 48}}};
  CHECK(f.At(77, next_turn).room_wait_seconds == Approx(5e-3));
  f.ledger.OnTokensLeft(77, 1, 8);
  CHECK(f.At(77).prompt_seconds == Approx(8 * 12.5e-3 + 0.1 - 8 * 1.25e-3));
  CHECK(f.At(77).prompt_delay_seconds == Approx(8 * 2.5e-3));
}

TEST_CASE("a worker that has measured little is believed where it is fast") {
  Measured f;
  WorkerLoad little = MeasuredLoad(100);
  little.fitted_tokens = 20;
  f.Load(kDecode, little);
  CHECK(f.At(kDecode).prompt_seconds == Approx(0.1));
  little.prefill_cost = MeasuredLoad(2000).prefill_cost;
  f.Load(kDecode, little);
  CHECK(f.At(kDecode).prompt_seconds == Approx(0.05));
  f.Load(kDecode, MeasuredLoad(100));
  CHECK(f.At(kDecode).prompt_seconds == Approx(1));
}

TEST_CASE("a relay pays for a broken link between its ranks, so it is none") {
  Measured f(RelayRules{.min_tokens = 64});
  const AttemptSpec spec{.n_prompt = 1000, .max_tokens = 10, .may_relay = true};
  REQUIRE(f.Choose(spec).is_relay());
  for (const auto& [source, sink] : {std::pair(kP1, kP2), std::pair(kP2, kP1)})
    f.broken_links.OnBroken(source, sink, kNow);
  CHECK_FALSE(f.Choose(spec).is_relay());
}

TEST_CASE("without local plans roles are kept where they can be") {
  PredictorFixture f;
  const Predictor by_role({}, false, f.members, f.ledger, f.broken_links);
  for (const Incarnation worker : {kP1, kP2}) f.Load(worker, MeasuredLoad(100));
  f.Load(kDecode, MeasuredLoad(1000));
  CHECK(f.Choose().prefill() == kDecode);
  CHECK(by_role.Choose(kSpec, {}, kNow)->prefill() != kDecode);
  CHECK(by_role.Choose(kSpec, {kP1, kP2}, kNow)->prefill() == kDecode);
}

TEST_CASE("a worker to avoid is taken when no other can, one that drains never") {
  Measured f;
  CHECK(f.Choose(kSpec, {kP1}).prefill() == kP2);
  CHECK(f.Choose(kSpec, {kP2}).prefill() == kP1);
  CHECK(f.Choose(kSpec, {kP1, kP2, kDecode}).decode == kDecode);
  f.members.OnDraining(kP1);
  CHECK(f.Choose(kSpec, {kP2}).prefill() != kP1);
  f.members.OnDraining(kP2);
  f.members.OnDraining(kDecode);
  CHECK_FALSE(f.predictor.Choose(kSpec, {}, kNow));
}

TEST_CASE("a request that fits no worker has no plan") {
  Measured f;
  CHECK_FALSE(f.predictor.Choose({.n_prompt = 2000, .max_tokens = 49}, {}, kNow));
  CHECK(f.predictor.Choose({.n_prompt = 2000, .max_tokens = 48}, {}, kNow));
}

TEST_CASE("a relay needs measured costs, and a prompt without KV of an earlier attempt") {
  PredictorFixture f({.min_tokens = 40});
  CHECK_FALSE(f.Choose().is_relay());
  f.Load(kP1, MeasuredLoad(1000));
  const Plan relay = f.Choose();
  CHECK(relay.is_relay());
  CHECK(relay.first_token_seconds < 0.1);
  CHECK(f.predictor.OwnPrefillSeconds({.slices = {{kP1, 100}}}, kSpec) == Approx(0.1));
  CHECK(f.predictor.OwnPrefillSeconds(relay, kSpec) < 0.06);  // the longest of two slices
  AttemptSpec other = kSpec;
  other.may_relay = false;
  CHECK_FALSE(f.Choose(other).is_relay());
  other = kSpec;
  other.kept = {{.worker = kP1, .tokens = 10}};
  CHECK_FALSE(f.Choose(other).is_relay());
  CHECK_FALSE(
      f.Choose(kSpec, {kP1, kP2, kDecode}).is_relay());  // nobody is left but those to avoid
}

TEST_CASE("relays that took much longer than predicted are not chosen") {
  Measured f({.min_tokens = 40});
  const Plan relay = f.Choose();
  REQUIRE(relay.is_relay());
  CHECK(f.predictor.Expected(relay, kSpec) == 1.1 * absl::Seconds(relay.first_token_seconds));
  for (int i = 0; i < 4; ++i) f.predictor.OnFirstToken(relay, kSpec, 4);
  CHECK(f.predictor.Expected(relay, kSpec) > 2 * absl::Seconds(relay.first_token_seconds));
  const Plan alone = f.Choose();
  CHECK(f.predictor.Expected(alone, kSpec) == absl::Seconds(alone.first_token_seconds));
  CHECK(f.predictor.Expected({.slices = {{kP1, 100}}}, kSpec) == absl::InfiniteDuration());
  CHECK_FALSE(alone.is_relay());
  // Where prompts of one worker are as late, relays pay again.
  for (int i = 0; i < 20; ++i) f.predictor.OnFirstToken(alone, kSpec, 4);
  CHECK(f.Choose().is_relay());
}

TEST_CASE(
    "a short prompt waits for the rest of the step under way of a longer one, then for its next 32 "
    "tokens while its promise is asked for") {
  Measured f;
  AttemptSpec longer = kSpec;
  longer.n_prompt = 1000;
  WorkerLoad load = MeasuredLoad(1000);
  load.prefill_queued_tokens = 900;  // a step of 0.1 s is done
  load.prompt_step_seconds = 0.1;
  const auto ahead = [&](absl::Duration since_report) {
    f.Load(kP1, load, -since_report);
    return f.At(kP1).ahead_seconds;
  };
  // The report is younger than the prompt, so the next step began with it.
  f.ledger.Reserve(1, {.slices = {{kP1, 1000}}, .decode = kDecode}, longer, 16,
                   kNow - absl::Seconds(1));
  CHECK(ahead(absl::ZeroDuration()) == Approx(0.1 + 0.032));
  CHECK(ahead(absl::Milliseconds(70)) == Approx(0.03 + 0.032));
  CHECK(ahead(absl::Milliseconds(300)) == Approx(0.032));  // the step must be ending
  load.prompt_step_seconds = 0;                            // not known
  CHECK(ahead(absl::ZeroDuration()) == Approx(0.032));
  // A step of its own kind is counted already, and is partly done.
  load.prompt_step_seconds = 0.1;
  load.prefill_queued_tokens = 1080;
  f.ledger.Reserve(2, {.slices = {{kP1, 80}}, .decode = kDecode},
                   {.n_prompt = 80, .max_tokens = 10}, 16, kNow - absl::Seconds(1));
  CHECK(ahead(absl::ZeroDuration()) == Approx(0.08).margin(0.011));
  CHECK(ahead(absl::Milliseconds(50)) == Approx(0.03).margin(0.011));
}

TEST_CASE("a longer prompt fills up the step of one with few tokens; a slice does not") {
  Measured f;
  WorkerLoad load = MeasuredLoad(1000);
  load.prefill_queued_tokens = 1000;
  load.prompt_step_seconds = 0.1;
  f.Load(kP1, load);
  AttemptSpec few = kSpec, longer = kSpec;
  few.n_prompt = 20;
  longer.n_prompt = 1000;
  f.Reserve(1, kP1, longer);
  CHECK(f.At(kP1, few).prompt_seconds == Approx(0.064));
  CHECK(f.At(kP1).prompt_seconds == Approx(0.1));
  CHECK(f.At(kP2, few).prompt_seconds == Approx(0.02));
  f.ledger.Reserve(2, {.slices = {{kP2, 500}, {kP1, 500}}, .decode = kDecode}, longer, 16, kNow);
  f.Load(kP2, load);
  CHECK(f.At(kP2, few).prompt_seconds == Approx(0.02));
}

}  // namespace baton
