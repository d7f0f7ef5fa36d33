#include "router/policy.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "common/check.h"

namespace baton {
namespace {

using Seconds = std::optional<double>;

constexpr double kTieRatio = 1.02, kTieSeconds = 1e-3;

int32_t PagesFor(int64_t n_tokens, int32_t page_tokens) {
  return static_cast<int32_t>((n_tokens + page_tokens - 1) / page_tokens);
}

double TieLimit(double seconds) { return seconds * kTieRatio + kTieSeconds; }

// Bounds the workers for the prompt, and those for decoding, that are paired.
constexpr size_t kFew = 8;

// Returns the candidates with the least seconds_of, which is empty for those that are out of the
// question; of equal ones, the least recently chosen.
std::vector<const Candidate*> Few(std::span<const Candidate> candidates, auto seconds_of) {
  std::vector<std::tuple<double, uint64_t, Incarnation, const Candidate*>> all;
  double min_seconds = std::numeric_limits<double>::infinity();
  for (const Candidate& c : candidates) {
    const Seconds seconds = seconds_of(c);
    if (!seconds) continue;
    all.emplace_back(*seconds, c.last_chosen, c.worker, &c);
    min_seconds = std::min(min_seconds, *seconds);
  }
  if (all.size() > kFew) {
    for (auto& each : all) std::get<0>(each) = std::max(std::get<0>(each), TieLimit(min_seconds));
    std::nth_element(all.begin(), all.begin() + kFew, all.end());
    all.resize(kFew);
  }
  std::vector<const Candidate*> few;
  for (const auto& each : all) few.push_back(std::get<3>(each));
  return few;
}

// Cost of a handoff over a broken link: the time until that shows, and the next attempt.
constexpr double kBrokenSeconds = 5;

bool IsBroken(Incarnation worker, const Candidate& from) {
  return std::binary_search(from.broken_to.begin(), from.broken_to.end(), worker);
}

ChainLink LinkTo(Incarnation worker, const Candidate& from) {
  const auto rate =
      std::lower_bound(from.links.begin(), from.links.end(), worker,
                       [](const LinkRate& each, Incarnation peer) { return each.peer < peer; });
  ChainLink link = from.link;
  if (rate != from.links.end() && rate->peer == worker)
    link = {.bytes_per_second = rate->bytes_per_second,
            .latency = static_cast<double>(rate->round_trip_us) / 2e6};
  if (IsBroken(worker, from)) link.latency += kBrokenSeconds;
  return link;
}

// One worker for the prompt and one for the rest; null: no token follows the first.
struct Pair {
  const Candidate* source;
  const Candidate* sink;

  bool is_local() const { return source == sink; }
  // Each worker does what its role says.
  bool IsByRole() const {
    if (sink == nullptr) return source->role != Role::kDecode;
    return source->role == (is_local() ? Role::kBoth : Role::kPrefill);
  }
  bool HasLink() const { return sink == nullptr || is_local() || !IsBroken(sink->worker, *source); }
};

bool IsSparing(const Pair& pair, const AttemptSpec& spec) {
  if (pair.sink != nullptr && !pair.is_local()) return true;
  const Candidate& worker = *pair.source;
  if (worker.role != Role::kDecode) return pair.IsByRole();
  return worker.rows == 0 || 2 * spec.PrefillTokensAt(worker.worker) <= spec.n_prompt;
}

double FirstTokenSeconds(double begin, double compute, const Candidate* sink) {
  return std::max(begin, sink == nullptr ? 0 : sink->room_wait_seconds) + compute;
}

double FirstTokenOf(const Pair& pair) {
  return FirstTokenSeconds(pair.source->ahead_seconds, pair.source->prompt_seconds, pair.sink);
}

// By how much the prompt's KV is complete at the decode worker after its first token: what the link
// takes, for KV under way too, beyond the time in which that is computed, for it is handed over
// meanwhile.
double KvLateSeconds(const Pair& pair, const AttemptSpec& spec) {
  if (pair.sink == nullptr || pair.is_local()) return 0;
  int64_t tokens = spec.PrefillTokensAt(pair.sink->worker);
  for (const TokensTo& sent : pair.source->sending)
    if (sent.worker == pair.sink->worker) tokens += sent.tokens;
  const PrefillCost& cost = pair.source->cost;
  const double bytes = cost.kv_bytes * cost.n_layers * static_cast<double>(tokens);
  const double seconds = bytes / LinkTo(pair.sink->worker, *pair.source).bytes_per_second;
  return std::max(0.0, seconds - pair.source->ahead_seconds - pair.source->prompt_seconds) +
         (pair.HasLink() ? 0 : kBrokenSeconds);
}

// Seconds that prompts which are still there add to the row, which begins with the first token.
double BesideSeconds(const Pair& pair) {
  const Candidate& sink = *pair.sink;
  if (pair.is_local()) return sink.local_beside_seconds;
  const double left = sink.beside_seconds - sink.beside_done * FirstTokenOf(pair);
  return std::clamp(left, 0.0, sink.max_beside_seconds);
}

// Time of the tokens after the first.
double FurtherSeconds(const Pair& pair, const AttemptSpec& spec) {
  return KvLateSeconds(pair, spec) + pair.sink->decode_seconds + BesideSeconds(pair);
}

double GapSeconds(const Pair& pair, const AttemptSpec& spec) {
  if (pair.sink == nullptr || pair.sink->decode_seconds <= 0) return 0;
  const double tokens = pair.sink->decode_seconds / pair.sink->step_seconds;
  const double besides = FurtherSeconds(pair, spec) - pair.sink->decode_seconds;
  return pair.sink->gap_seconds + besides / tokens;
}

// docs/SCHEDULING.md, workers of a request.
double ScoreOf(const Pair& pair, const AttemptSpec& spec) {
  const double score = FirstTokenOf(pair) + pair.source->prompt_delay_seconds;
  if (pair.sink == nullptr) return score;
  return score + FurtherSeconds(pair, spec) + pair.sink->row_delay_seconds;
}

// Every pair, of few workers if there are many, and every worker for both.
std::vector<Pair> PairsOf(std::span<const Candidate> candidates, const AttemptSpec& spec,
                          PlanKinds kinds) {
  std::vector<Pair> pairs;
  const auto may = [&](const Pair& pair) {
    if (kinds == PlanKinds::kByRole) return pair.IsByRole();
    if (kinds == PlanKinds::kSparing) return IsSparing(pair, spec);
    return kinds == PlanKinds::kAll ||
           (pair.source->role != Role::kDecode &&
            (pair.sink == nullptr || pair.sink->worker <= pair.source->worker));
  };
  const auto add = [&](const Pair& pair) {
    if (may(pair)) pairs.push_back(pair);
  };
  for (const Candidate& c : candidates)
    if (c.fits_prefill && (spec.prefill_only() || c.fits_decode))
      add({&c, spec.prefill_only() ? nullptr : &c});
  if (spec.prefill_only()) return pairs;
  const auto may_sink = [](const Candidate& c) {
    return c.fits_decode && c.role != Role::kPrefill;
  };
  const auto n_sinks = std::count_if(candidates.begin(), candidates.end(), may_sink);
  const auto sources = Few(candidates, [&](const Candidate& c) {
    const bool by_role = c.role == Role::kPrefill || kinds != PlanKinds::kByRole;
    const bool is_cut_off = n_sinks > 0 && std::ssize(c.broken_to) >= n_sinks;
    return c.fits_prefill && c.role != Role::kDecode && by_role
               ? Seconds(c.ahead_seconds + c.prompt_seconds + c.prompt_delay_seconds +
                         (is_cut_off ? kBrokenSeconds : 0))
               : std::nullopt;
  });
  // Workers that are cut off have no load, and must not be all of the few.
  const auto sinks = Few(candidates, [&](const Candidate& c) -> Seconds {
    if (!may_sink(c)) return std::nullopt;
    const bool is_cut_off = std::all_of(sources.begin(), sources.end(), [&c](const auto* source) {
      return IsBroken(c.worker, *source);
    });
    return c.room_wait_seconds + c.decode_seconds +
           std::min(c.beside_seconds, c.max_beside_seconds) + c.row_delay_seconds +
           (is_cut_off ? kBrokenSeconds : 0);
  });
  for (const Candidate* const source : sources)
    for (const Candidate* const sink : sinks)
      if (source != sink) add({source, sink});
  return pairs;
}

// The ranks that a relay may have. Of two workers the one that takes half the time for the prompt
// is twice as fast, whether by its linear layers or by its attention.
std::vector<OfferedWorker> Offer(std::span<const Candidate> candidates, double nominal_seconds,
                                 Incarnation decode, const AttemptSpec& spec) {
  std::vector<OfferedWorker> offered;
  offered.reserve(candidates.size());
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
    offered.back().link_to = [&c, all = candidates.data()](int to) {
      return LinkTo(all[to].worker, c);
    };
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

int32_t MaxAt(Incarnation worker, const std::vector<CachedPrefix>& prefixes) {
  int32_t tokens = 0;
  for (const CachedPrefix& prefix : prefixes)
    if (prefix.worker == worker) tokens = std::max(tokens, prefix.tokens);
  return tokens;
}

}  // namespace

int32_t AttemptSpec::PrefillTokensAt(Incarnation worker) const {
  return std::max(1, n_prompt - std::max(MaxAt(worker, kept), MaxAt(worker, cached)));
}

int32_t AttemptSpec::ComputedTokensAt(Incarnation worker) const {
  const int32_t with_tail = MaxAt(worker, cached) + MaxAt(worker, tails);
  return std::max(1, std::min(PrefillTokensAt(worker), n_prompt - with_tail));
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
  if (room.Has(pages)) return 0;
  int64_t pages_free = room.pages_free;
  int32_t rows = room.rows;
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

const Candidate* CandidateOf(std::span<const Candidate> candidates, Incarnation worker) {
  for (const Candidate& c : candidates)
    if (c.worker == worker) return &c;
  return nullptr;
}

std::optional<Plan> ChoosePlan(std::span<const Candidate> candidates, const AttemptSpec& spec,
                               PlanKinds kinds, int64_t* counted) {
  const std::vector<Pair> pairs = PairsOf(candidates, spec, kinds);
  if (counted != nullptr) *counted += static_cast<int64_t>(pairs.size());
  const bool keeps_roles = kinds == PlanKinds::kByRole || kinds == PlanKinds::kSparing;
  if (pairs.empty()) return keeps_roles ? ChoosePlan(candidates, spec) : std::nullopt;
  std::vector<double> scores;
  for (const Pair& pair : pairs) scores.push_back(ScoreOf(pair, spec));
  const auto min_score = std::min_element(scores.begin(), scores.end());
  // How near scores are to each other is a matter of what differs: not of all tokens to come.
  const double first_token = FirstTokenOf(pairs[static_cast<size_t>(min_score - scores.begin())]);
  const double limit = *min_score + TieLimit(first_token) - first_token;
  const auto rank = [](const Pair& pair) {
    const Candidate& sink = pair.sink == nullptr ? *pair.source : *pair.sink;
    return std::tuple(!pair.IsByRole(), sink.last_chosen, pair.source->last_chosen, sink.worker,
                      pair.source->worker);
  };
  size_t best = pairs.size();
  for (size_t i = 0; i < pairs.size(); ++i)
    if (scores[i] <= limit && (best == pairs.size() || rank(pairs[i]) < rank(pairs[best])))
      best = i;
  const Pair& pair = pairs[best];
  if (!pair.HasLink() && keeps_roles) return ChoosePlan(candidates, spec);
  const double next = pair.sink == nullptr ? 0 : pair.sink->step_seconds;
  return Plan{.slices = {{pair.source->worker, spec.n_prompt}},
              .decode = pair.sink == nullptr ? 0 : pair.sink->worker,
              .score = scores[best],
              .predicted_seconds = FirstTokenOf(pair) + KvLateSeconds(pair, spec) + next,
              .first_token_seconds = FirstTokenOf(pair),
              .queue_seconds = FirstTokenOf(pair) - pair.source->prompt_seconds,
              .gap_seconds = GapSeconds(pair, spec)};
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

std::vector<Incarnation> Plan::SinksOf(Incarnation worker) const {
  std::vector<Incarnation> sinks;
  for (size_t next = 1; next < slices.size(); ++next)
    if (slices[next - 1].worker == worker && slices[next].worker != worker)
      sinks.push_back(slices[next].worker);
  const bool hands_to_decode = push == RelayPush::kAll ? Computes(worker) : worker == prefill();
  if (decode != 0 && !Computes(decode) && hands_to_decode) sinks.push_back(decode);
  return sinks;
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

int32_t Plan::TokensSent(Incarnation worker, const AttemptSpec& spec) const {
  if (decode == 0 || Computes(decode)) return 0;
  const bool by_all = push == RelayPush::kAll;
  if (!by_all && worker != prefill()) return 0;
  const int32_t there = spec.n_prompt - spec.PrefillTokensAt(decode);
  int32_t tokens = 0;
  for (size_t i = 0; i < slices.size(); ++i)
    if (!by_all || slices[i].worker == worker)
      tokens += std::max(0, slices[i].end - std::max(BeginOf(i), there));
  return tokens;
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
  const auto n_broken = [&](const Candidate& c) {  // links, of the plan with this worker
    const Plan mended = with(c.worker);
    int n = 0;
    for (const Incarnation worker : mended.PrefillWorkers())
      if (const Candidate* const from = CandidateOf(candidates, worker); from != nullptr)
        for (const Incarnation sink : mended.SinksOf(worker)) n += IsBroken(sink, *from);
    return n;
  };
  const auto price = [&](const Candidate& c) {
    const Plan mended = with(c.worker);
    int at_once = 0;
    for (const Incarnation head : mended.HeadWorkers()) at_once += mended.TakesPagesAtOnce(head);
    const double queue_seconds = is_rank ? c.slice_ahead_seconds : 0;
    const double decode_seconds = c.room_wait_seconds + c.decode_seconds;
    return std::tuple(n_broken(c), queue_seconds + (decodes ? decode_seconds : 0), at_once);
  };
  const Candidate* best = nullptr;
  for (const Candidate& c : candidates)
    if (can(c) && !has_part(c) && (best == nullptr || price(c) < price(*best))) best = &c;
  const Incarnation neighbour = is_rank ? NeighbourOf(relay, lost) : 0;
  for (const Candidate& c : candidates)
    if (c.worker == neighbour && can(c) && (best == nullptr || n_broken(c) < n_broken(*best)))
      best = &c;
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
  std::vector<const Candidate*> ranks;
  for (const Candidate& c : candidates)
    if (c.fits_prefill && c.worker >= plan.decode && (anyone || c.role != Role::kDecode))
      ranks.push_back(&c);
  std::sort(ranks.begin(), ranks.end(), [](const Candidate* a, const Candidate* b) {
    return std::pair(a->last_chosen, a->worker) < std::pair(b->last_chosen, b->worker);
  });
  std::vector<Candidate> may_prefill;
  may_prefill.reserve(ranks.size());
  for (const Candidate* const rank : ranks) may_prefill.push_back(*rank);
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
  relay.score -= shared.saved;
  relay.predicted_seconds += shared.seconds - shared.alone;
  relay.first_token_seconds = FirstTokenSeconds(shared.begin, shared.seconds - shared.begin,
                                                CandidateOf(candidates, plan.decode));
  return relay;
}

}  // namespace baton
