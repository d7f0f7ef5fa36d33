#include "router/policy.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace baton {
namespace {

using Seconds = std::optional<double>;

constexpr double kTieRatio = 1.02, kTieSeconds = 1e-3;

int32_t PagesFor(int64_t n_tokens, int32_t page_tokens) {
  return static_cast<int32_t>((n_tokens + page_tokens - 1) / page_tokens);
}

// The candidate with the minimal seconds_of, which is empty for those that are out of the question;
// of equal ones, the least recently chosen.
const Candidate* Min(std::span<const Candidate> candidates, auto seconds_of) {
  double min_seconds = std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates)
    min_seconds = std::min(min_seconds, seconds_of(c).value_or(min_seconds));
  const Candidate* best = nullptr;
  for (const Candidate& c : candidates) {
    const Seconds seconds = seconds_of(c);
    if (!seconds || *seconds > min_seconds * kTieRatio + kTieSeconds) continue;
    if (best == nullptr ||
        std::pair(c.last_chosen, c.worker) < std::pair(best->last_chosen, best->worker))
      best = &c;
  }
  return best;
}

ChainLink LinkTo(Incarnation worker, const Candidate& from) {
  for (const LinkRate& rate : from.links)
    if (rate.peer == worker)
      return {.bytes_per_second = rate.bytes_per_second,
              .latency = static_cast<double>(rate.round_trip_us) / 2e6};
  return from.link;
}

// By how much a prompt's KV is complete at the decode worker after its first token: what its link
// takes beyond the time in which it is computed, for it is handed over meanwhile.
double KvLateSeconds(const Candidate& from, Incarnation decode, const AttemptSpec& spec) {
  const double bytes = from.cost.kv_bytes * from.cost.n_layers * spec.n_prompt;
  return std::max(0.0, bytes / LinkTo(decode, from).bytes_per_second - from.prompt_seconds);
}

// The ranks that a relay may have. Of two workers the one that takes half the time for the prompt
// is twice as fast, whether by its linear layers or by its attention.
std::vector<OfferedWorker> Offer(std::span<const Candidate> candidates, double nominal_seconds,
                                 Incarnation decode, const AttemptSpec& spec) {
  std::vector<OfferedWorker> offered;
  for (const Candidate& c : candidates) {
    offered.push_back({.speed = nominal_seconds / c.uncached_seconds,
                       .seconds = c.ahead_seconds,
                       .slice_seconds = c.slice_ahead_seconds,
                       .passed = c.passed,
                       .place = ~c.worker,
                       .sink = LinkTo(decode, c),
                       .max_slice_tokens = c.max_slice_tokens,
                       .alone_seconds = c.prompt_seconds,
                       .cpu_group = c.cpu_group,
                       .cpu_share = c.cpu_share,
                       .cached = spec.n_prompt - spec.PrefillTokensAt(c.worker)});
    for (const Candidate& to : candidates) offered.back().links.push_back(LinkTo(to.worker, c));
  }
  return offered;
}

int32_t LongestSliceAt(Incarnation worker, const Plan& relay) {
  int32_t longest = 0;
  for (size_t i = 0; i < relay.slices.size(); ++i)
    if (relay.slices[i].worker == worker)
      longest = std::max(longest, relay.slices[i].end - relay.BeginOf(i));
  return longest;
}

// The rank before a relay's rank; for the first rank, the second one.
Incarnation NeighbourOf(const Plan& relay, Incarnation worker) {
  size_t slice = 0;
  while (relay.slices[slice].worker != worker) ++slice;
  return relay.slices[slice > 0 ? slice - 1 : 1].worker;
}

}  // namespace

int32_t AttemptSpec::PrefillTokensAt(Incarnation worker) const {
  int32_t there = worker == kept.worker ? kept.tokens : 0;
  for (const CachedPrefix& prefix : cached)
    if (prefix.worker == worker) there = std::max(there, prefix.tokens);
  return std::max(1, n_prompt - there);
}

int32_t AttemptSpec::PromptPages(int32_t page_tokens) const {
  return PagesFor(n_prompt, page_tokens);
}

int32_t AttemptSpec::WholePages(int32_t page_tokens) const {
  return PagesFor(int64_t{n_prompt} + max_tokens - 1, page_tokens);
}

int32_t AttemptSpec::PromisePages(int32_t page_tokens) const {
  const int32_t whole = WholePages(page_tokens);
  return covered ? whole : std::min(whole, PromptPages(page_tokens) + 1);
}

int32_t AttemptSpec::HeldPages(int32_t made, int32_t page_tokens) const {
  return std::max(PromisePages(page_tokens), PagesFor(int64_t{n_prompt} + made, page_tokens));
}

double CapacityWaitSeconds(const DecodeRoom& room, std::vector<DecodeReservation> holdings,
                           int32_t pages) {
  int64_t pages_free = room.pages_free;
  int32_t rows = room.rows;
  if (pages_free >= pages && rows < room.max_batch) return 0;
  std::sort(holdings.begin(), holdings.end(),
            [](const DecodeReservation& a, const DecodeReservation& b) {
              return a.tokens_left < b.tokens_left;
            });
  double wait_seconds = 0;
  for (const DecodeReservation& holding : holdings) {
    wait_seconds = room.step_seconds * holding.tokens_left;
    pages_free += holding.pages;
    --rows;
    if (pages_free >= pages && rows < room.max_batch) break;
  }
  return wait_seconds;
}

double DecodeSeconds(const DecodeRoom& room, double room_wait_seconds) {
  const double fullness = static_cast<double>(room.rows) / std::max(room.max_batch, 1);
  return room_wait_seconds + room.step_seconds * (1 + fullness);
}

const Candidate* CandidateOf(std::span<const Candidate> candidates, Incarnation worker) {
  for (const Candidate& c : candidates)
    if (c.worker == worker) return &c;
  return nullptr;
}

double FirstTokenSeconds(std::span<const Candidate> candidates, Incarnation decode,
                         double queue_seconds, double compute_seconds) {
  const Candidate* const sink = CandidateOf(candidates, decode);
  const double promise_seconds = sink == nullptr ? 0 : sink->room_wait_seconds;
  return std::max(queue_seconds, promise_seconds) + compute_seconds;
}

std::optional<Plan> ChoosePlan(std::span<const Candidate> candidates, const AttemptSpec& spec) {
  const auto plan_by = [&](auto seconds_of, auto decode_of) -> std::optional<Plan> {
    const Candidate* const best = Min(candidates, seconds_of);
    if (best == nullptr) return std::nullopt;
    return Plan{.slices = {{best->worker, spec.n_prompt}},
                .decode = decode_of(*best),
                .predicted_seconds = *seconds_of(*best)};
  };
  if (spec.prefill_only()) {
    const auto nowhere = [](const Candidate&) { return Incarnation{0}; };
    const auto any_seconds = [](const Candidate& c) {
      return c.fits_prefill ? Seconds(c.prefill_seconds) : std::nullopt;
    };
    const auto of_role_seconds = [&](const Candidate& c) {
      return c.role != Role::kDecode ? any_seconds(c) : std::nullopt;
    };
    const std::optional<Plan> preferred = plan_by(of_role_seconds, nowhere);
    return preferred ? preferred : plan_by(any_seconds, nowhere);
  }
  const Candidate* const sink = Min(candidates, [](const Candidate& c) {
    return c.fits_decode && c.role != Role::kPrefill ? Seconds(c.decode_seconds) : std::nullopt;
  });
  const auto source_seconds = [&](const Candidate& c) {
    return sink != nullptr && c.fits_prefill && c.role == Role::kPrefill
               ? Seconds(c.prefill_seconds + KvLateSeconds(c, sink->worker, spec))
               : std::nullopt;
  };
  const Candidate* const source = Min(candidates, source_seconds);
  const auto local_seconds = [](const Candidate& c) {
    return c.fits_prefill && c.fits_decode ? Seconds(c.prefill_seconds + c.decode_seconds)
                                           : std::nullopt;
  };
  const auto of_role_seconds = [&](const Candidate& c) {
    if (&c == source) return Seconds(*source_seconds(c) + sink->decode_seconds);
    return c.role == Role::kBoth ? local_seconds(c) : std::nullopt;
  };
  const auto decode_of = [&](const Candidate& c) { return &c == source ? sink->worker : c.worker; };
  const std::optional<Plan> preferred = plan_by(of_role_seconds, decode_of);
  return preferred ? preferred : plan_by(local_seconds, decode_of);
}

bool Plan::Computes(Incarnation worker) const {
  return std::any_of(slices.begin(), slices.end(),
                     [worker](const PlannedSlice& slice) { return slice.worker == worker; });
}

std::vector<Incarnation> Plan::PrefillWorkers() const {
  std::vector<Incarnation> workers;
  for (const PlannedSlice& slice : slices) {
    std::erase(workers, slice.worker);
    workers.push_back(slice.worker);
  }
  return workers;
}

std::vector<Incarnation> Plan::HeadWorkers() const {
  std::vector<Incarnation> workers = PrefillWorkers();
  workers.pop_back();
  return workers;
}

std::vector<Incarnation> Plan::Workers() const {
  std::vector<Incarnation> workers = PrefillWorkers();
  if (decode != 0 && !Computes(decode)) workers.push_back(decode);
  return workers;
}

size_t Plan::n_rounds() const {
  size_t rounds = 1;
  for (size_t i = 1; i < slices.size(); ++i)
    rounds += slices[i - 1].worker == prefill() && slices[i].worker != prefill();
  return rounds;
}

std::vector<int32_t> Plan::HopTokens() const {
  std::vector<int32_t> tokens;
  for (size_t next = 1; next < slices.size(); ++next) {
    size_t behind = next;  // the slice behind the worker's one before, up to which it has all
    while (behind > 0 && slices[behind - 1].worker != slices[next].worker) --behind;
    tokens.push_back(BeginOf(next) - BeginOf(behind));
  }
  return tokens;
}

PrefillWork Plan::PrefillWorkAt(Incarnation worker, const AttemptSpec& spec) const {
  PrefillWork work;
  // The first worker may have some of its first slice, but for the last token.
  const PlannedSlice& first = slices.front();
  int32_t before = std::min(spec.n_prompt - spec.PrefillTokensAt(first.worker), first.end - 1);
  for (const PlannedSlice& slice : slices) {
    if (slice.worker == worker) work += PrefillWork::Of(slice.end - before, before);
    before = slice.end;
  }
  return work;
}

bool Plan::TakesPagesAtOnce(Incarnation worker) const {
  if (worker == prefill()) return false;
  Incarnation before = decode;
  for (auto slice = slices.rbegin(); slice->worker != worker; ++slice)
    before = std::max(before, slice->worker);
  return worker < before;
}

std::optional<Plan> ReplaceWorker(const Plan& relay, Incarnation lost,
                                  std::span<const Candidate> candidates) {
  const bool decodes = lost == relay.decode, is_rank = relay.Computes(lost);
  BATON_CHECK(decodes || is_rank);
  const int32_t tokens = LongestSliceAt(lost, relay);
  const auto can = [&](const Candidate& c) {
    const bool computes = c.fits_prefill && c.role != Role::kDecode && c.max_slice_tokens >= tokens;
    return (!is_rank || computes) && (!decodes || (c.fits_decode && c.role != Role::kPrefill));
  };
  const auto has_part = [&](const Candidate& c) {
    return c.worker == relay.decode || relay.Computes(c.worker);
  };
  const auto with = [&](Incarnation worker) {
    Plan mended = relay;
    if (decodes) mended.decode = worker;
    for (PlannedSlice& slice : mended.slices)
      if (slice.worker == lost) slice.worker = worker;
    mended.first_token_seconds = 0;  // unknown: how much of the KV is there is not reported
    return mended;
  };
  const auto price = [&](const Candidate& c) {
    const Plan mended = with(c.worker);
    int at_once = 0;
    for (const Incarnation head : mended.HeadWorkers()) at_once += mended.TakesPagesAtOnce(head);
    const double queue_seconds = is_rank ? c.slice_ahead_seconds : 0;
    return std::pair(queue_seconds + (decodes ? c.decode_seconds : 0), at_once);
  };
  const Candidate* best = nullptr;
  for (const Candidate& c : candidates)
    if (can(c) && !has_part(c) && (best == nullptr || price(c) < price(*best))) best = &c;
  const Incarnation neighbour = is_rank ? NeighbourOf(relay, lost) : 0;
  for (const Candidate& c : candidates)
    if (best == nullptr && c.worker == neighbour && can(c)) best = &c;
  if (best == nullptr) return std::nullopt;
  return with(best->worker);
}

Plan ShareWithHeads(const Plan& plan, std::span<const Candidate> candidates,
                    const AttemptSpec& spec, int32_t page_tokens, double waiting,
                    const RelayRules& rules, const PlanRecord& record) {
  const Candidate* const first = CandidateOf(candidates, plan.prefill());
  BATON_CHECK(first != nullptr);
  if (first->worker < plan.decode) return plan;
  // Candidates that ChoosePlan would let prefill in the worker's place.
  const bool anyone = first->role == Role::kDecode;
  std::vector<Candidate> may_prefill;
  for (const Candidate& c : candidates)
    if (c.fits_prefill && c.worker >= plan.decode && (anyone || c.role != Role::kDecode))
      may_prefill.push_back(c);
  std::sort(may_prefill.begin(), may_prefill.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(a.last_chosen, a.worker) < std::pair(b.last_chosen, b.worker);
  });
  const Candidate* const must = CandidateOf(may_prefill, plan.prefill());
  const RelayPlanRequest request{.tokens = spec.n_prompt,
                                 .page_tokens = page_tokens,
                                 .rules = rules,
                                 .must = static_cast<int>(must - may_prefill.data()),
                                 .waiting = waiting};
  const RelayPlan shared = PlanRelay(
      must->cost, record, Offer(may_prefill, must->uncached_seconds, plan.decode, spec), request);
  if (shared.slices.size() < 2) return plan;
  Plan relay = plan;
  relay.slices.clear();
  for (const auto& [worker, end] : shared.slices)
    relay.slices.push_back({may_prefill[static_cast<size_t>(worker)].worker, end});
  // None sends to itself.
  if (plan.decode != 0 && !relay.Computes(plan.decode)) relay.push = shared.push;
  relay.predicted_seconds += shared.seconds - shared.alone;
  relay.first_token_seconds =
      FirstTokenSeconds(candidates, plan.decode, shared.begin, shared.seconds - shared.begin);
  return relay;
}

}  // namespace baton
