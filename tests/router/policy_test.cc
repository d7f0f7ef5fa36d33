#include "router/policy.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <deque>
#include <limits>
#include <random>

namespace baton {
namespace {

constexpr AttemptSpec kSpec{.n_prompt = 100, .max_tokens = 20};
constexpr AttemptSpec kOneToken{.n_prompt = 100, .max_tokens = 1};

Candidate Worker(Incarnation id, Role role, double prefill_ms, double decode_ms,
                 uint64_t last_chosen = 0) {
  return {.worker = id,
          .role = role,
          .fits_prefill = true,
          .fits_decode = true,
          .prompt_seconds = prefill_ms / 1e3,
          .decode_seconds = decode_ms / 1e3,
          .last_chosen = last_chosen};
}

std::pair<Incarnation, Incarnation> Pair(const std::vector<Candidate>& candidates,
                                         const AttemptSpec& spec = kSpec,
                                         PlanKinds kinds = PlanKinds::kByRole) {
  const std::optional<Plan> plan = ChoosePlan(candidates, spec, kinds);
  REQUIRE(plan.has_value());
  return {plan->prefill(), plan->decode};
}

Plan Alone(Incarnation prefill, Incarnation decode, double predicted_ms = 0) {
  return {.slices = {{prefill, kSpec.n_prompt}},
          .decode = decode,
          .predicted_seconds = predicted_ms / 1e3};
}

using Ids = std::pair<Incarnation, Incarnation>;

// Plans a relay with pages of 16 tokens; the request's 100 tokens take 90 ms of each worker's
// prompt_seconds.
Plan Relay(const Plan& plan, std::vector<Candidate> candidates, const AttemptSpec& spec = kSpec,
           int max_ranks = 2) {
  for (Candidate& c : candidates) {
    c.uncached_seconds = 0.9e-3 * spec.n_prompt;
    c.cost.token = 0.9e-3;
    c.ahead_seconds = c.slice_ahead_seconds = c.prompt_seconds - c.uncached_seconds;
    c.prompt_seconds = c.uncached_seconds;
  }
  return ShareWithHeads(plan, candidates, spec, 16, 0, {.min_tokens = 1, .max_ranks = max_ranks},
                        PlanRecord());
}

// Returns the decode worker, the tail, and the heads from the last to the first.
std::vector<Incarnation> Ranks(const Plan& plan) {
  std::vector<Incarnation> ranks = plan.PrefillWorkers();
  ranks.push_back(plan.decode);
  std::reverse(ranks.begin(), ranks.end());
  return ranks;
}

using Incarnations = std::vector<Incarnation>;

}  // namespace

TEST_CASE("the least predicted prefill wait and decode wait are chosen") {
  CHECK(Pair({Worker(1, Role::kPrefill, 300, 10), Worker(2, Role::kPrefill, 200, 10),
              Worker(3, Role::kDecode, 1, 50), Worker(4, Role::kDecode, 1, 40)}) == Ids(2, 4));
}

// 100 tokens in 2 layers, 1 kB each: 200 kB, sent during 100 ms of computation.
TEST_CASE("a slow link to the decode worker counts as far as computing does not hide it") {
  std::deque<std::vector<LinkRate>> links;
  const auto with_link = [&](Candidate c, double bytes_per_second) {
    c.ahead_seconds = c.prompt_seconds - 0.1;
    c.prompt_seconds = 0.1;
    c.cost.n_layers = 2;
    c.cost.kv_bytes = 1000;
    c.links = links.emplace_back(1, LinkRate{.peer = 3, .bytes_per_second = bytes_per_second});
    return c;
  };
  const auto chosen = [&](double bytes_per_second, const AttemptSpec& spec = kSpec) {
    return Pair({with_link(Worker(1, Role::kPrefill, 200, 10), bytes_per_second),
                 with_link(Worker(2, Role::kPrefill, 250, 10), 1e9),
                 Worker(3, Role::kDecode, 1, 50)},
                spec)
        .first;
  };
  CHECK(chosen(1e9) == 1);
  CHECK(chosen(1e6) == 1);    // 200 ms: hidden
  CHECK(chosen(9e5) == 1);    // 22 ms more
  CHECK(chosen(7.5e5) == 2);  // 67 ms more
  CHECK(chosen(1, kOneToken) == 1);
}

TEST_CASE("ties go to the least recently chosen, then to the smaller id") {
  const auto prefill = [](uint64_t chosen_1, uint64_t chosen_2) {
    return Pair({Worker(1, Role::kPrefill, 200, 0, chosen_1),
                 Worker(2, Role::kPrefill, 201, 0, chosen_2), Worker(3, Role::kDecode, 0, 10)})
        .first;
  };
  CHECK(prefill(5, 4) == 2);  // 201 is within 2 %
  CHECK(prefill(4, 5) == 1);
  CHECK(prefill(0, 0) == 1);
}

TEST_CASE("a worker of both roles decodes what it prefilled") {
  CHECK(Pair({Worker(1, Role::kBoth, 300, 10), Worker(2, Role::kBoth, 100, 90)}) == Ids(2, 2));
  // A colocated worker is not mixed with another, even where the sum would be lower.
  CHECK(Pair({Worker(1, Role::kBoth, 300, 10), Worker(2, Role::kBoth, 100, 300)}) == Ids(1, 1));
}

TEST_CASE("a mixed cluster takes the cheaper of pair and local") {
  const Candidate prefill = Worker(1, Role::kPrefill, 100, 10);
  CHECK(Pair({prefill, Worker(2, Role::kBoth, 400, 20)}) == Ids(1, 2));
  CHECK(Pair({prefill, Worker(2, Role::kBoth, 50, 20)}) == Ids(2, 2));
  CHECK(Pair({prefill, Worker(2, Role::kBoth, 400, 200), Worker(3, Role::kDecode, 0, 30)}) ==
        Ids(1, 3));
}

TEST_CASE("roles are preferences") {
  CHECK(Pair({Worker(1, Role::kPrefill, 30, 10), Worker(2, Role::kPrefill, 10, 10)}) == Ids(2, 2));
  CHECK(Pair({Worker(1, Role::kDecode, 30, 10), Worker(2, Role::kDecode, 30, 90)}) == Ids(1, 1));
  CHECK(Pair({Worker(1, Role::kDecode, 30, 10)}, kOneToken) == Ids(1, 0));
}

constexpr PlanKinds kAll = PlanKinds::kAll;

TEST_CASE("any worker may do both, whatever its role, where that is better; among equals roles") {
  const Candidate prefill = Worker(1, Role::kPrefill, 100, 10);
  const auto pair = [&](const Candidate& decode, const Candidate& source) {
    return Pair({source, decode}, kSpec, kAll);
  };
  CHECK(pair(Worker(3, Role::kDecode, 100, 10), prefill) == Ids(1, 3));
  CHECK(pair(Worker(3, Role::kDecode, 90, 10), prefill) == Ids(3, 3));
  CHECK(pair(Worker(3, Role::kDecode, 100, 20), prefill) == Ids(1, 1));
  CHECK(Pair({Worker(3, Role::kDecode, 90, 10), prefill}) == Ids(1, 3));
  // Time that a prompt costs others counts as its own does.
  Candidate decode = Worker(3, Role::kDecode, 90, 10);
  decode.prompt_delay_seconds = 0.02;
  CHECK(pair(decode, prefill) == Ids(1, 3));
  // Prompts that are computed beside the row count too: here all, there those behind its own.
  decode = Worker(3, Role::kDecode, 100, 10);
  decode.beside_seconds = 0.02;
  CHECK(pair(decode, Worker(1, Role::kPrefill, 100, 40)) == Ids(3, 3));
  decode.local_beside_seconds = 0.02;
  CHECK(pair(decode, Worker(1, Role::kPrefill, 100, 40)) == Ids(1, 3));
  decode = Worker(3, Role::kDecode, 100, 10);
  decode.row_delay_seconds = 0.02;
  CHECK(pair(decode, prefill) == Ids(1, 1));
  // A full decode worker costs nothing while the prompt waits in a queue as long.
  decode = Worker(3, Role::kDecode, 300, 10);
  decode.room_wait_seconds = 0.05;
  Candidate busy = prefill;
  busy.ahead_seconds = 0.05;
  busy.prompt_delay_seconds = 0;
  CHECK(Pair({busy, decode}) == Ids(1, 3));
  CHECK(ChoosePlan(std::vector{busy, decode}, kSpec)->first_token_seconds == Approx(0.15));
}

TEST_CASE("workers of both roles hand over to each other where that is better") {
  CHECK(Pair({Worker(1, Role::kBoth, 300, 10), Worker(2, Role::kBoth, 100, 300)}, kSpec, kAll) ==
        Ids(2, 1));
  CHECK(Pair({Worker(1, Role::kBoth, 100, 10), Worker(2, Role::kBoth, 100, 10)}, kSpec, kAll) ==
        Ids(1, 1));
}

TEST_CASE("KV under way on the link counts, and KV that is there already does not") {
  const std::vector<LinkRate> links = {{.peer = 3, .bytes_per_second = 1e6}};
  Candidate source = Worker(1, Role::kPrefill, 100, 1000);
  source.cost.n_layers = 2;
  source.cost.kv_bytes = 1000;  // 100 tokens take 200 ms
  source.links = links;
  const Candidate sink = Worker(3, Role::kDecode, 1000, 10);
  const auto score = [&](const AttemptSpec& spec = kSpec) {
    const std::optional<Plan> plan = ChoosePlan(std::vector{source, sink}, spec);
    REQUIRE(plan->decode == 3);
    return 1e3 * plan->score;
  };
  CHECK(score() == Approx(100 + 100 + 10));
  AttemptSpec there = kSpec;
  there.cached = {{.worker = 3, .tokens = 80}};
  CHECK(score(there) == Approx(100 + 10));
  const std::vector<TokensTo> sending = {{.worker = 3, .tokens = 50}, {.worker = 4, .tokens = 999}};
  source.sending = sending;
  CHECK(score() == Approx(100 + 200 + 10));
  source.ahead_seconds = 0.05;  // meanwhile the link gets on
  CHECK(score() == Approx(50 + 100 + 150 + 10));
}

TEST_CASE(
    "prompts beside the row count as far as they are there when it begins, and while it lives") {
  Candidate beside = Worker(2, Role::kDecode, 0, 10);
  beside.beside_seconds = 0.2;
  const auto decode = [&] {
    return Pair({Worker(1, Role::kPrefill, 100, 0), beside, Worker(3, Role::kDecode, 0, 60)})
        .second;
  };
  CHECK(decode() == 3);
  beside.beside_done = 1;  // half of it in the 100 ms of the prompt
  CHECK(decode() == 3);
  beside.beside_done = 1.6;
  CHECK(decode() == 2);
  beside.beside_done = 0;
  beside.max_beside_seconds = 0.04;
  CHECK(decode() == 2);
}

TEST_CASE("of many workers few are compared, and the best are among them") {
  std::mt19937_64 random(3);
  for (const Incarnation n : {10, 100}) {
    std::vector<Candidate> candidates;
    for (Incarnation id = 1; id <= 2 * n; ++id)
      candidates.push_back(Worker(id, id <= n ? Role::kDecode : Role::kPrefill,
                                  static_cast<double>(100 + random() % 500),
                                  static_cast<double>(100 + random() % 500), random() % 50));
    int64_t compared = 0;
    const std::optional<Plan> plan = ChoosePlan(candidates, kSpec, kAll, &compared);
    CHECK(compared <= static_cast<int64_t>(2 * n) + 64);
    double min_score = 1e9;
    for (const Candidate& source : candidates)
      for (const Candidate& sink : candidates)
        if (source.worker == sink.worker ||
            (source.role == Role::kPrefill && sink.role == Role::kDecode))
          min_score = std::min(min_score, source.prompt_seconds + sink.decode_seconds);
    CHECK(plan->score <= min_score + 0.02 * 0.6 + 1e-3);
  }
}

TEST_CASE("one token needs no decode worker") {
  CHECK(Pair({Worker(1, Role::kPrefill, 30, 10), Worker(2, Role::kDecode, 1, 1),
              Worker(3, Role::kBoth, 20, 10)},
             kOneToken) == Ids(3, 0));
}

TEST_CASE("a worker that can never hold the request is not chosen") {
  Candidate small = Worker(1, Role::kDecode, 1, 1);
  small.fits_decode = false;
  const Candidate prefill = Worker(2, Role::kPrefill, 10, 10);
  CHECK(Pair({small, prefill, Worker(3, Role::kDecode, 1, 99)}) == Ids(2, 3));
  CHECK(Pair({small, prefill}) == Ids(2, 2));  // the prefill worker serves alone
  CHECK_FALSE(ChoosePlan(std::vector<Candidate>{small}, kSpec).has_value());
  CHECK_FALSE(ChoosePlan({}, kSpec).has_value());
}

std::vector<Candidate> RandomCandidates(std::mt19937_64& random) {
  std::vector<Candidate> candidates;
  for (Incarnation id = 1; id <= 6; ++id)
    candidates.push_back(Worker(id, static_cast<Role>(1 + random() % 3),
                                static_cast<double>(random() % 4) * 50,
                                static_cast<double>(random() % 4) * 50, random() % 3));
  return candidates;
}

TEST_CASE("the order of the candidates does not matter") {
  std::mt19937_64 random(1);
  for (int run = 0; run < 2000; ++run) {
    std::vector<Candidate> candidates = RandomCandidates(random);
    const std::optional<Plan> plan = ChoosePlan(candidates, kSpec);
    std::shuffle(candidates.begin(), candidates.end(), random);
    REQUIRE(ChoosePlan(candidates, kSpec) == plan);
  }
}

TEST_CASE("a relay: the two best prefill workers, the greater one is the head") {
  const Candidate decode = Worker(1, Role::kDecode, 1, 30);
  const Candidate a = Worker(5, Role::kPrefill, 100, 10), b = Worker(6, Role::kPrefill, 130, 10),
                  c = Worker(7, Role::kPrefill, 200, 10);
  const Plan plan = Alone(5, 1, 130);
  const Plan relay = Relay(plan, {decode, c, b, a});
  CHECK(Ranks(relay) == Incarnations{1, 5, 6});
  CHECK(relay.slices == std::vector<PlannedSlice>{{6, 48}, {5, 100}});
  // Both can start after 40 ms of queue; the tail has 52 of the 100 tokens.
  CHECK(1e3 * relay.predicted_seconds == Approx(30 + 40 + 0.52 * 90));
  CHECK(relay.PrefillWorkAt(6, kSpec).tokens == 48);
  CHECK(relay.PrefillWorkAt(5, kSpec).tokens == 52);
  CHECK(relay.PrefillWorkAt(5, kSpec).pairs == 52 * 48 + 52 * 26);
  CHECK(Ranks(Relay(Alone(6, 1), {decode, a, b, c})) == Incarnations{1, 5, 6});
  CHECK(Ranks(Relay(Alone(7, 1), {decode, b, c})) == Incarnations{1, 6, 7});
  CHECK(Ranks(Relay(Alone(5, 0), {a, b}, kOneToken)) == Incarnations{0, 5, 6});
}

TEST_CASE("a relay of more ranks: those that can begin soonest, as many as are sooner") {
  std::vector<Candidate> candidates = {Worker(1, Role::kDecode, 1, 30)};
  const AttemptSpec spec{.n_prompt = 400, .max_tokens = 2};
  for (Incarnation worker = 5; worker < 10; ++worker)
    candidates.push_back(Worker(worker, Role::kPrefill, 360, 10));  // 360 ms: all its own work
  const Plan plan = Alone(7, 1, 390);
  CHECK(Ranks(Relay(plan, candidates, spec, 3)) == Incarnations{1, 5, 6, 7});
  const Plan five = Relay(plan, candidates, spec, 9);
  CHECK(Ranks(five) == Incarnations{1, 5, 6, 7, 8, 9});
  CHECK(five.slices == std::vector<PlannedSlice>{{9, 80}, {8, 160}, {7, 240}, {6, 320}, {5, 400}});
  CHECK(1e3 * five.predicted_seconds == Approx(30 + 80 * 0.9));
  CHECK(five.PrefillWorkAt(5, spec).tokens == 80);
  // The plan does not wait for a busy worker.
  candidates[2] = Worker(6, Role::kPrefill, 360 + 100, 10);
  CHECK(Ranks(Relay(plan, candidates, spec, 9)) == Incarnations{1, 5, 7, 8, 9});
}

TEST_CASE("pages are taken in ascending order: decode worker, tail, head; else no relay") {
  const Candidate a = Worker(5, Role::kPrefill, 100, 10), b = Worker(6, Role::kPrefill, 130, 10);
  const auto alone = [](const Plan& plan, const std::vector<Candidate>& candidates) {
    return Relay(plan, candidates) == plan;
  };
  CHECK(alone(Alone(5, 9), {a, b, Worker(9, Role::kDecode, 1, 30)}));
  // The plan skips the worker whose order does not fit.
  CHECK(
      Ranks(Relay(Alone(6, 4), {Worker(3, Role::kPrefill, 90, 10), Worker(4, Role::kDecode, 1, 30),
                                b, Worker(8, Role::kPrefill, 140, 10)})) == Incarnations{4, 6, 8});
  // A tail may be the decode worker, a head never.
  const Candidate both_2 = Worker(2, Role::kBoth, 100, 10), both_7 = Worker(7, Role::kBoth, 90, 10);
  CHECK(Ranks(Relay(Alone(2, 2), {both_2, both_7})) == Incarnations{2, 2, 7});
  CHECK(alone(Alone(7, 7), {both_2, both_7}));
  CHECK(Ranks(Relay(Alone(5, 2), {a, both_2})) == Incarnations{2, 2, 5});
}

TEST_CASE("no relay without a second worker that may prefill, or a page to split off") {
  const Candidate decode = Worker(1, Role::kDecode, 100, 30);
  const Candidate other = Worker(8, Role::kDecode, 100, 99);
  const Candidate a = Worker(5, Role::kPrefill, 100, 10);
  Candidate small = Worker(6, Role::kPrefill, 130, 10);
  small.fits_prefill = false;
  const Plan plan = Alone(5, 1, 130);
  CHECK(Relay(plan, {decode, other, a}) == plan);
  CHECK(Relay(plan, {decode, a, small}) == plan);
  small.fits_prefill = true;
  CHECK(Relay(plan, {decode, a, small}).IsHead(6));
  CHECK(Relay(plan, {decode, a, small}, {.n_prompt = 16, .max_tokens = 2}) == plan);
  // Two decode workers may form a relay when they serve both phases.
  CHECK(Ranks(Relay(Alone(1, 1), {decode, other})) == Incarnations{1, 1, 8});
}

TEST_CASE("the order of the candidates does not matter for a relay either") {
  std::mt19937_64 random(2);
  int relays = 0;
  for (int run = 0; run < 2000; ++run) {
    std::vector<Candidate> candidates = RandomCandidates(random);
    const std::optional<Plan> plan = ChoosePlan(candidates, kSpec);
    REQUIRE(plan.has_value());
    const Plan relay = Relay(*plan, candidates, kSpec, 4);
    std::shuffle(candidates.begin(), candidates.end(), random);
    REQUIRE(Relay(*plan, candidates, kSpec, 4) == relay);
    if (!relay.is_relay()) continue;
    ++relays;
    REQUIRE(relay.decode <= relay.prefill());
    REQUIRE(relay.slices.size() <= 4);
    REQUIRE(relay.Computes(plan->prefill()));
    for (size_t i = 1; i < relay.slices.size(); ++i) {
      REQUIRE(relay.slices[i - 1].worker > relay.slices[i].worker);
      REQUIRE(relay.BeginOf(i) % 16 == 0);
      REQUIRE(relay.BeginOf(i) > relay.BeginOf(i - 1));
    }
    REQUIRE(relay.BeginOf(relay.slices.size() - 1) < kSpec.n_prompt);
    REQUIRE(relay.slices.back().end == kSpec.n_prompt);
  }
  CHECK(relays > 100);
  CHECK(relays < 2000);
}

TEST_CASE("a worker that is two ranks of a relay hands nothing to itself") {
  Plan plan{.slices = {{7, 32}, {6, 64}, {5, 96}, {7, 128}, {6, 160}, {5, 192}}, .decode = 1};
  const AttemptSpec spec{.n_prompt = 192, .max_tokens = 20};
  const auto replace = [&plan](Incarnation lost) {
    for (PlannedSlice& slice : plan.slices)
      if (slice.worker == lost) slice.worker = 7;
  };
  CHECK(plan.HopTokens() == std::vector<int32_t>{32, 64, 64, 64, 64});
  CHECK(plan.n_rounds() == 2);
  replace(6);
  CHECK(plan.HopTokens() == std::vector<int32_t>{0, 64, 32, 0, 64});
  CHECK(plan.HeadWorkers() == Incarnations{7});
  CHECK(plan.n_rounds() == 2);
  CHECK(plan.PrefillWorkAt(7, spec).tokens == 128);
  replace(5);
  CHECK(plan.HopTokens() == std::vector<int32_t>{0, 0, 0, 0, 0});
  CHECK(plan.n_rounds() == 1);
  CHECK(plan.HeadWorkers().empty());
  CHECK_FALSE(plan.IsHead(7));
  CHECK(plan.Workers() == Incarnations{7, 1});
}

TEST_CASE("a lost worker of a relay is replaced over links that are whole, if there are any") {
  const Plan relay{.slices = {{7, 32}, {6, 64}, {5, 100}}, .decode = 1, .push = RelayPush::kAll};
  CHECK(relay.SinksOf(7) == Incarnations{6, 1});
  CHECK(relay.SinksOf(5) == Incarnations{1});
  CHECK(relay.SinksOf(1).empty());
  std::vector<Candidate> candidates = {
      Worker(1, Role::kDecode, 0, 0),  Worker(2, Role::kDecode, 0, 10),
      Worker(3, Role::kDecode, 0, 20), Worker(5, Role::kPrefill, 0, 0),
      Worker(7, Role::kPrefill, 0, 0), Worker(8, Role::kPrefill, 0, 0),
      Worker(9, Role::kPrefill, 0, 0)};
  for (Candidate& c : candidates) {
    c.max_slice_tokens = 100;
    c.slice_ahead_seconds = static_cast<double>(c.worker);  // 8 could begin sooner than 9
  }
  const auto replaced = [&](Incarnation lost) {
    std::vector<Candidate> others;
    for (const Candidate& c : candidates)
      if (c.worker != lost) others.push_back(c);
    const std::optional<Plan> plan = ReplaceWorker(relay, lost, others);
    REQUIRE(plan.has_value());
    return lost == 1 ? plan->decode : plan->slices[1].worker;
  };
  CHECK(replaced(6) == 8);
  CHECK(replaced(1) == 2);
  candidates[4].broken_to = {2, 8};  // from 7, the rank before
  CHECK(replaced(6) == 9);
  CHECK(replaced(1) == 3);
  candidates[4].broken_to = {2, 3, 8};
  candidates[6].broken_to = {5};  // from 9 to the next rank
  CHECK(replaced(6) == 7);        // which needs no link for it
  CHECK(replaced(1) == 2);
  candidates[4].max_slice_tokens = 20;  // fewer than those of 6
  CHECK(replaced(6) == 8);
}

TEST_CASE("prefill work is priced by what a worker's steps cost it") {
  const auto seconds = [](double token, const PrefillWork& work) {
    return WorkSeconds({.n_layers = 4, .token = token}, work);
  };
  CHECK(seconds(2.5e-4, PrefillWork::Of(100, 0)) == Approx(0.1));
  CHECK(seconds(1.25e-4, PrefillWork::Of(500, 9999)) == Approx(0.25));
  const PrefillCost cost{.n_layers = 4, .token = 2.5e-4, .pair = 2.5e-6, .extra_tokens = 7};
  // Tokens cost more in a long prompt and behind other tokens.
  PrefillWork work = PrefillWork::Of(100, 0);
  CHECK(1e3 * WorkSeconds(cost, work) == Approx(100 + 50));
  CHECK(1e3 * WorkSeconds(cost, PrefillWork::Of(200, 0)) == Approx(200 + 200));
  CHECK(1e3 * WorkSeconds(cost, PrefillWork::Of(100, 100)) == Approx(100 + 150));
  CHECK(1e3 * cost.Alone(200, 0) == Approx(200 + 200 + 7));
  work += PrefillWork::Of(100, 100);
  CHECK(WorkSeconds(cost, work) == Approx(WorkSeconds(cost, PrefillWork::Of(200, 0))));
}

TEST_CASE("the wait for room follows the holdings that end first") {
  const std::vector<DecodeReservation> holdings = {{.pages = 4, .tokens_left = 50},
                                                   {.pages = 2, .tokens_left = 10}};
  const auto wait = [&](int64_t pages_free, int32_t rows, int32_t max_batch, int32_t pages) {
    return 1e3 * CapacityWaitSeconds({.pages_free = pages_free,
                                      .rows = rows,
                                      .max_batch = max_batch,
                                      .step_seconds = 3e-3},
                                     holdings, pages);
  };
  CHECK(wait(5, 2, 4, 5) == 0);
  CHECK(wait(3, 2, 4, 5) == Approx(30));   // two pages come after 10 tokens
  CHECK(wait(0, 2, 4, 5) == Approx(150));  // six after 50
  CHECK(wait(5, 2, 2, 5) == Approx(30));   // pages, but no row
  CHECK(wait(0, 2, 4, 99) == Approx(150));
}

TEST_CASE("a page's part is copied behind the cached pages only") {
  AttemptSpec spec{.n_prompt = 100, .max_tokens = 1, .cached = {{7, 64}}, .tails = {{7, 20}}};
  CHECK(spec.PrefillTokensAt(7) == 36);
  CHECK(spec.ComputedTokensAt(7) == 16);
  spec.kept = {{7, 80}};  // what an earlier attempt left reaches further
  CHECK(spec.PrefillTokensAt(7) == 20);
  CHECK(spec.ComputedTokensAt(7) == 16);
  spec.kept = {{7, 96}};
  CHECK(spec.ComputedTokensAt(7) == 4);
  CHECK(spec.ComputedTokensAt(8) == 100);
}

TEST_CASE("pages of an attempt") {
  CHECK(AttemptSpec{.n_prompt = 64, .max_tokens = 1}.PromptPages(64) == 1);
  CHECK(AttemptSpec{.n_prompt = 65, .max_tokens = 1}.PromptPages(64) == 2);
  CHECK(AttemptSpec{.n_prompt = 64, .max_tokens = 1}.PromisePages(64) == 1);
  CHECK(AttemptSpec{.n_prompt = 64, .max_tokens = 2}.PromisePages(64) == 2);
  CHECK(AttemptSpec{.n_prompt = 64, .max_tokens = 200}.PromisePages(64) == 2);
  CHECK(AttemptSpec{.n_prompt = 64, .max_tokens = 200, .covered = true}.PromisePages(64) == 5);
  CHECK(AttemptSpec{.n_prompt = 64, .max_tokens = 200}.HeldPages(1, 64) == 2);
  CHECK(AttemptSpec{.n_prompt = 64, .max_tokens = 200}.HeldPages(70, 64) == 3);
  CHECK(AttemptSpec{.n_prompt = 1 << 30, .max_tokens = 1 << 30}.WholePages(16) == 1 << 27);
}

}  // namespace baton
