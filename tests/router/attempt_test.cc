// One attempt alone: what counts as a sign of life, when it is broken, and what it learns about its
// own prediction.
#include "router/attempt.h"

#include <catch2/catch.hpp>

#include "tests/support/router_harness.h"

namespace baton {
namespace {

constexpr Incarnation kDecode = 1, kTail = 11, kHead = 12;
const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

Plan PairPlan() {
  return {.slices = {{kTail, 20}},
          .decode = kDecode,
          .predicted_seconds = 0.05,
          .first_token_seconds = 0.1};
}
Plan RelayPlanOfTwo() {
  Plan plan = PairPlan();
  plan.slices = {{kHead, 16}, {kTail, 20}};
  plan.first_token_seconds = 0.06;
  return plan;
}

// An attempt at a prompt of 20 tokens, of which up to 10 more are wanted.
struct AttemptFixture {
  explicit AttemptFixture(const Plan& plan = PairPlan(), int32_t prompt_logprobs = -1)
      : wanted{.name = "r", .prompt_logprobs = prompt_logprobs},
        attempt({.epoch = 1,
                 .plan = plan,
                 .spec = {.n_prompt = 20, .max_tokens = 10},
                 .names = {{0, ""}, {kDecode, "d"}, {kTail, "t"}, {kHead, "h"}},
                 .expected = absl::Seconds(plan.first_token_seconds)},
                wanted, options, &timeline, kNow) {}

  absl::Status Token(Incarnation from, int32_t position, int32_t next) {
    return attempt.OnToken(from, {.epoch = 1, .position = position}, next, kNow);
  }
  absl::Status End(Incarnation from, bool was_prefill, EndReason reason = EndReason::kLength,
                   PartFault fault = PartFault::kOwn) {
    return attempt.OnPartEnded(from,
                               {.epoch = 1,
                                .was_prefill = was_prefill,
                                .reason = reason,
                                .fault = fault,
                                .message = reason == EndReason::kFailed ? "it broke" : ""},
                               kNow);
  }
  std::string Broken() const { return attempt.Broken().message; }

  RouterOptions options;
  Timeline timeline;
  GenerateRequest wanted;
  Attempt attempt;
};

using Incarnations = std::vector<Incarnation>;

}  // namespace

TEST_CASE("a new attempt tells the timeline what it is, and nothing of an earlier one") {
  Timeline timeline{.prefill_worker = "old", .slices = {1, 2}, .took = absl::Seconds(1)};
  const RouterOptions options;
  const GenerateRequest wanted;
  const Attempt attempt({.epoch = 3,
                         .plan = RelayPlanOfTwo(),
                         .spec = {.n_prompt = 20, .max_tokens = 10},
                         .names = {{kDecode, "d"}, {kTail, "t"}, {kHead, "h"}}},
                        wanted, options, &timeline, kNow);
  CHECK(timeline.prefill_worker == "t");
  CHECK(timeline.decode_worker == "d");
  CHECK(timeline.prefill_heads == "h");
  CHECK(timeline.attempts == 3);
  CHECK(timeline.slices == std::vector<int32_t>{16, 4});
  CHECK(timeline.predicted == absl::Milliseconds(60));
  CHECK(timeline.took == absl::ZeroDuration());
  CHECK(attempt.OpenWorkers() == Incarnations{kDecode, kTail, kHead});
  CHECK_FALSE(attempt.spoke());
  CHECK(attempt.kept().empty());
  CHECK(attempt.Hopeless().ok());
  CHECK(attempt.Broken().message.empty());
}

TEST_CASE("a token before its turn is kept, one after its turn is not") {
  AttemptFixture f;
  REQUIRE(f.Token(kDecode, 22, 20).ok());
  REQUIRE(f.Token(kDecode, 21, 20).ok());
  CHECK(f.attempt.spoke());
  CHECK_FALSE(f.attempt.TakeEarly(20));
  REQUIRE(f.Token(kTail, 20, 20).ok());
  CHECK(f.attempt.TakeEarly(21)->position == 21);
  CHECK(f.attempt.TakeEarly(22)->position == 22);
  CHECK_FALSE(f.attempt.TakeEarly(23));
  REQUIRE(f.Token(kDecode, 21, 23).ok());
  CHECK_FALSE(f.attempt.TakeEarly(21));
}

TEST_CASE("a token outside the attempt or of another worker is a violation") {
  AttemptFixture f(RelayPlanOfTwo());
  CHECK_FALSE(f.Token(kTail, 19, 20).ok());
  CHECK_FALSE(f.Token(kDecode, 30, 20).ok());
  CHECK_FALSE(f.Token(kHead, 20, 20).ok());
  CHECK_FALSE(f.attempt.spoke());
  CHECK(f.Token(kDecode, 29, 20).ok());
}

TEST_CASE("silence: the prediction's slack first, attempt_silence after each sign of life") {
  AttemptFixture f;
  const absl::Duration silence = f.options.attempt_silence;
  CHECK(f.attempt.Alarm() == kNow + silence + absl::Milliseconds(20 * 50));
  REQUIRE(f.Token(kTail, 20, 20).ok());
  CHECK(f.attempt.Alarm() == kNow + silence);
  f.attempt.OnNoRoom(absl::Seconds(2), kNow);
  CHECK(f.attempt.Alarm() == kNow + silence + absl::Seconds(40));
}

TEST_CASE("a relay without a token is late 100 ms after it was expected, or after what is borne") {
  AttemptFixture f(RelayPlanOfTwo());
  const absl::Time late = kNow + absl::Milliseconds(160);  // expected after 60
  CHECK(f.attempt.Alarm() == late);
  CHECK_FALSE(f.attempt.IsLate(late - absl::Milliseconds(1)));
  CHECK(f.attempt.IsLate(late));
  f.attempt.BearLateness(absl::Seconds(4));
  CHECK_FALSE(f.attempt.IsLate(late));
  CHECK(f.attempt.Alarm() == late + absl::Seconds(4));
  REQUIRE(f.Token(kTail, 20, 20).ok());
  CHECK_FALSE(f.attempt.IsLate(kNow + absl::Seconds(60)));
  AttemptFixture alone;
  CHECK_FALSE(alone.attempt.IsLate(kNow + absl::Seconds(60)));
}

TEST_CASE("a part that ended is closed once; other ends are violations") {
  AttemptFixture f(RelayPlanOfTwo());
  CHECK_FALSE(f.End(kDecode, true).ok());
  CHECK_FALSE(f.End(kTail, false).ok());
  CHECK_FALSE(f.End(kTail, true, EndReason::kPreempted).ok());
  REQUIRE(f.End(kHead, true).ok());
  CHECK(f.attempt.a_head_ended());
  CHECK(f.attempt.OpenWorkers() == Incarnations{kDecode, kTail});
  REQUIRE(f.End(kHead, true, EndReason::kFailed).ok());  // it is closed
  CHECK(f.Broken().empty());
  REQUIRE(f.End(kDecode, false, EndReason::kPreempted).ok());
  CHECK(f.attempt.preempted());
  CHECK(f.attempt.OpenWorkers() == Incarnations{kTail});
}

TEST_CASE("prefill workers are needed until their KV is where it is wanted") {
  const auto broken_after = [](int n_tokens, Incarnation failed,
                               RelayPush push = RelayPush::kTail) {
    Plan plan = RelayPlanOfTwo();
    plan.push = push;
    AttemptFixture f(plan);
    if (n_tokens > 0) {
      REQUIRE(f.Token(kTail, 20, 20).ok());
      f.attempt.OnEmitted(kNow);
    }
    if (n_tokens > 1) REQUIRE(f.Token(kDecode, 21, 21).ok());
    REQUIRE(f.End(failed, failed != kDecode, EndReason::kFailed).ok());
    return !f.Broken().empty();
  };
  CHECK(broken_after(0, kHead));
  CHECK_FALSE(broken_after(1, kHead));
  CHECK(broken_after(1, kHead, RelayPush::kAll));  // its slice goes to the decode worker too
  CHECK_FALSE(broken_after(2, kHead, RelayPush::kAll));
  CHECK(broken_after(1, kTail));
  CHECK_FALSE(broken_after(2, kTail));
  CHECK(broken_after(2, kDecode));
}

TEST_CASE("a lost worker breaks the attempt by its name, if its part was needed") {
  AttemptFixture f(RelayPlanOfTwo());
  f.attempt.OnWorkerLost(kHead);
  CHECK(f.Broken() == "head worker h was lost");
  AttemptFixture ended(RelayPlanOfTwo());
  REQUIRE(ended.End(kHead, true).ok());
  ended.attempt.OnWorkerLost(kHead);
  CHECK(ended.Broken().empty());
  ended.attempt.OnWorkerLost(kDecode);
  CHECK(ended.Broken() == "decode worker d was lost");
  CHECK(ended.attempt.OpenWorkers() == Incarnations{kTail});
}

TEST_CASE("parts that end without the token that is due break the attempt") {
  AttemptFixture f;
  REQUIRE(f.End(kDecode, false).ok());
  CHECK(f.Broken().empty());  // the first token is still to come
  REQUIRE(f.Token(kTail, 20, 20).ok());
  f.attempt.OnEmitted(kNow);
  CHECK(f.Broken() == "decode worker d ended 9 tokens early");
  AttemptFixture other;
  REQUIRE(other.End(kTail, true).ok());
  CHECK(other.Broken() == "prefill worker t ended without a first token");
}

TEST_CASE("a fault of the request ends it, of the decode worker's after the tokens before it") {
  AttemptFixture f;
  REQUIRE(f.End(kDecode, false, EndReason::kFailed, PartFault::kGrammar).ok());
  CHECK(f.attempt.Hopeless().ok());
  REQUIRE(f.Token(kTail, 20, 20).ok());
  f.attempt.OnEmitted(kNow);
  CHECK(f.attempt.Hopeless().code() == absl::StatusCode::kInvalidArgument);
  AttemptFixture unread;
  REQUIRE(unread.End(kTail, true, EndReason::kFailed, PartFault::kUnreadable).ok());
  CHECK(unread.attempt.Hopeless().code() == absl::StatusCode::kInternal);
  CHECK(unread.attempt.Hopeless().message() ==
        "request r: worker t cannot read the message about it: it broke; run the same version of "
        "baton everywhere");
}

TEST_CASE("an outcome is told once, if the prediction could have been right") {
  AttemptFixture f;
  CHECK_FALSE(f.attempt.TakeOutcome());
  f.attempt.OnEmitted(kNow + absl::Milliseconds(150));
  const std::optional<Attempt::Outcome> outcome = f.attempt.TakeOutcome();
  REQUIRE(outcome);
  CHECK(outcome->ratio == Approx(1.5));
  CHECK_FALSE(outcome->found_more);
  CHECK_FALSE(outcome->is_as_expected);  // nothing has told what was computed
  CHECK(f.timeline.took == absl::Milliseconds(150));
  CHECK_FALSE(f.attempt.TakeOutcome());
  const auto told = [](AttemptFixture& surprised) {
    surprised.attempt.OnEmitted(kNow + absl::Milliseconds(150));
    return surprised.attempt.TakeOutcome();
  };
  AttemptFixture given_up(RelayPlanOfTwo());
  given_up.attempt.OnGivenUp({}, kNow + absl::Milliseconds(300));
  CHECK(given_up.attempt.TakeOutcome()->ratio == 5);
  AttemptFixture full, cached, usual, scored(PairPlan(), 0);
  full.attempt.OnNoRoom(absl::ZeroDuration(), kNow);
  REQUIRE(cached.attempt.OnPromptComputed(kTail, {.epoch = 1, .reused_tokens = 16}, kNow).ok());
  REQUIRE(usual.attempt.OnPromptComputed(kTail, {.epoch = 1}, kNow).ok());
  CHECK_FALSE(told(full));
  CHECK_FALSE(told(scored));
  const auto found = told(cached), expected = told(usual);
  REQUIRE((found && expected));
  CHECK((found->found_more && !found->is_as_expected));
  CHECK((!expected->found_more && expected->is_as_expected));
}

TEST_CASE("the workers that computed the prompt may keep its KV") {
  AttemptFixture f(RelayPlanOfTwo());
  using Kept = std::vector<CachedPrefix>;
  f.attempt.OnGivenUp({{.worker = kHead, .tokens = 16}}, kNow);
  CHECK(f.attempt.kept() == Kept{{.worker = kHead, .tokens = 16}});
  REQUIRE(f.attempt.OnPromptComputed(kTail, {.epoch = 1}, kNow).ok());
  CHECK(f.attempt.kept() == Kept{{.worker = kHead, .tokens = 16}, {.worker = kTail, .tokens = 20}});
  CHECK_FALSE(f.attempt.OnPromptComputed(kHead, {.epoch = 1}, kNow).ok());
}

TEST_CASE("an attempt has got on with its eighth token") {
  AttemptFixture f;
  for (int i = 0; i < 7; ++i) f.attempt.OnEmitted(kNow);
  CHECK_FALSE(f.attempt.got_on());
  f.attempt.OnEmitted(kNow);
  CHECK(f.attempt.got_on());
}

}  // namespace baton
