#include "planner/relay_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "planner/chain_estimate.h"
#include "planner/partition.h"

namespace baton {
namespace {

// Bounds of rounds; and the share of a relay's time that one more round must save.
constexpr int kMaxRounds = 64;
constexpr double kRoundSaves = .02;
constexpr double kWholeCpus = 1 + 1e-6;  // shares may be thirds

// The slowest link from a rank to the next; in a ring also from the last rank to the first.
ChainLink SlowestLink(std::span<const OfferedWorker> offered, std::span<const int> ranks,
                      bool is_ring) {
  ChainLink slowest;
  for (size_t i = 0; i + (is_ring ? 0 : 1) < ranks.size(); ++i) {
    const OfferedWorker& from = offered[static_cast<size_t>(ranks[i])];
    const int next = ranks[(i + 1) % ranks.size()];
    const ChainLink link = from.link_to ? from.link_to(next) : from.link;
    slowest.bytes_per_second = std::min(slowest.bytes_per_second, link.bytes_per_second);
    slowest.latency = std::max(slowest.latency, link.latency);
  }
  return slowest;
}

enum class Rounds { kEqualWork, kEqualTokens };

// (rounds x ranks) slices in the order of the prompt: equal rounds, each shared by all ranks; empty
// if a slice would be too short. The tokens that the first rank hands on precede them.
std::vector<int> SlicesInRounds(const PrefillCost& cost, const ChainLink& link,
                                const RelayPlanRequest& request, std::span<const double> speeds,
                                int n_rounds, Rounds equal, int handed_on) {
  std::vector<double> shares(static_cast<size_t>(n_rounds), double(request.tokens) / n_rounds);
  if (equal == Rounds::kEqualWork) {
    const std::vector<double> alike(shares.size(), 1.0);
    shares = EqualWork(cost, request.tokens, request.prefix, alike);
  }
  const std::vector<int> rounds = RoundSlices(shares, request.tokens, request.page_tokens);
  if (rounds.size() < shares.size()) return {};
  std::vector<int> slices;
  int prefix = request.prefix;
  for (const int tokens : rounds) {
    const std::vector<double> exact = request.rules.sharing->Slices(
        cost, link, tokens, prefix, speeds, std::exchange(handed_on, 0));
    if (exact.empty()) return {};
    const std::vector<int> round = RoundSlices(exact, tokens, request.page_tokens);
    if (round.size() < speeds.size()) return {};
    slices.insert(slices.end(), round.begin(), round.end());
    prefix += tokens;
  }
  return slices;
}

// The minimum number of rounds in which the slices fit.
int MinRounds(std::span<const OfferedWorker> offered, std::span<const int> ranks, int tokens) {
  int64_t max_slice_tokens = 0;  // sum over the ranks of a round
  for (const int rank : ranks)
    max_slice_tokens += offered[static_cast<size_t>(rank)].max_slice_tokens;
  return static_cast<int>(1 + (tokens - 1) / max_slice_tokens);
}

// The slices for the ranks in turn; empty if one is longer than its rank takes.
std::vector<RelaySlice> InTurn(std::span<const int> slices, std::span<const OfferedWorker> offered,
                               std::span<const int> ranks) {
  std::vector<RelaySlice> planned;
  int end = 0;
  for (const int tokens : slices) {
    const int rank = ranks[planned.size() % ranks.size()];
    if (tokens > offered[static_cast<size_t>(rank)].max_slice_tokens) return {};
    planned.push_back({.worker = rank, .end = end += tokens});
  }
  return planned;
}

// all: the chain with the slices of all rounds. The sooner choice for the last round is used in all
// rounds.
PushChoice PushInRounds(const PrefillCost& cost, const RelayPlanRequest& request, PushedChain all) {
  const size_t n_ranks = all.speeds.size();
  PushedChain last = all;
  last.slices = all.slices.last(n_ranks);
  last.prefix = std::accumulate(all.slices.begin(), all.slices.end() - int(n_ranks), all.prefix);
  if (all.slices.size() > n_ranks) last.handed_on = 0;
  PushChoice choice{.push = request.rules.sharing->Push(cost, last)};
  for (PushedChain round = all; !all.slices.empty(); all.slices = all.slices.subspan(n_ranks)) {
    round.slices = all.slices.first(n_ranks);
    choice.delay += PushBy(choice.push, cost, round).delay;
    round.prefix = std::accumulate(round.slices.begin(), round.slices.end(), round.prefix);
    round.handed_on = 0;
  }
  return choice;
}

// Speeds of these workers when they run together, because some share their CPUs.
std::vector<double> SpeedsTogether(std::span<const OfferedWorker> offered,
                                   std::span<const int> ranks) {
  std::vector<double> speeds;
  for (const int rank : ranks) {
    const OfferedWorker& worker = offered[static_cast<size_t>(rank)];
    double share = 0;  // share taken of the worker's CPUs, by itself and others
    for (const int other : ranks)
      if (worker.cpu_group != 0 &&
          offered[static_cast<size_t>(other)].cpu_group == worker.cpu_group)
        share += offered[static_cast<size_t>(other)].cpu_share;
    speeds.push_back(worker.speed / std::max(1.0, share / std::max(1.0, worker.cpu_share)));
  }
  return speeds;
}

// Plan of these workers together, in their order and in as few such rounds as their slices allow,
// or in more if that is sooner and the sharing may add rounds. No slices if a slice would be too
// short or too long. The first rank has `cached` tokens of its first slice. Seconds count from the
// moment all ranks can begin.
RelayPlan InRounds(Rounds equal, const PrefillCost& cost, std::span<const OfferedWorker> offered,
                   const std::vector<int>& ranks, const RelayPlanRequest& whole, int cached) {
  RelayPlanRequest request = whole;
  request.tokens -= cached;
  request.prefix += cached;
  const std::vector<double> speeds = SpeedsTogether(offered, ranks);
  std::vector<ChainLink> sinks;
  for (const int rank : ranks) sinks.push_back(offered[static_cast<size_t>(rank)].sink);
  RelayPlan best;
  for (int n_rounds = MinRounds(offered, ranks, request.tokens); n_rounds <= kMaxRounds;
       ++n_rounds) {
    const ChainLink link = SlowestLink(offered, ranks, n_rounds > 1);
    std::vector<int> slices = SlicesInRounds(cost, link, request, speeds, n_rounds, equal, cached);
    if (slices.empty()) break;
    const std::vector<double> exact(slices.begin(), slices.end());
    slices.front() += cached;  // must fit even if the cached tokens are gone
    std::vector<RelaySlice> planned = InTurn(slices, offered, ranks);
    if (planned.empty()) continue;
    const PushedChain chain = {exact, double(request.prefix), speeds, link, sinks, double(cached)};
    const PushChoice push = PushInRounds(cost, request, chain);
    const double seconds =
        ChainSeconds(cost, link, exact, request.prefix, speeds, cached) + push.delay;
    if (!best.slices.empty() && seconds >= best.seconds * (1 - kRoundSaves)) break;
    best = {.slices = std::move(planned), .seconds = seconds, .push = push.push};
    if (!request.rules.sharing->may_add_rounds()) break;
  }
  return best;
}

// Where attention is most of the work, rounds of equal work differ so much in length that the first
// may be too long for any number of rounds whose last is long enough.
RelayPlan Together(const PrefillCost& cost, std::span<const OfferedWorker> offered,
                   const std::vector<int>& ranks, const RelayPlanRequest& request, int cached) {
  RelayPlan plan = InRounds(Rounds::kEqualWork, cost, offered, ranks, request, cached);
  if (!plan.slices.empty()) return plan;
  return InRounds(Rounds::kEqualTokens, cost, offered, ranks, request, cached);
}

// No plan of these workers takes less: as if all of them worked all the time, and links took none.
double MinSeconds(const PrefillCost& cost, std::span<const OfferedWorker> offered,
                  const std::vector<int>& ranks, const RelayPlanRequest& request, int cached) {
  const std::vector<double> speeds = SpeedsTogether(offered, ranks);
  const double speed = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  const double tokens = request.tokens - cached;
  const double layer =
      cost.Linear(tokens) + cost.pair * CausalPairs(tokens, request.prefix + cached);
  return cost.head + cost.n_layers * layer / speed;
}

double AloneSeconds(const PrefillCost& cost, const OfferedWorker& worker,
                    const RelayPlanRequest& request) {
  if (worker.alone_seconds > 0) return worker.alone_seconds;
  return cost.Alone(request.tokens, request.prefix) / worker.speed;
}

RelayPlan Alone(const PrefillCost& cost, std::span<const OfferedWorker> offered,
                const RelayPlanRequest& request) {
  RelayPlan best;
  for (int i = 0; i < static_cast<int>(offered.size()); ++i) {
    const OfferedWorker& worker = offered[static_cast<size_t>(i)];
    if (request.must >= 0 && i != request.must) continue;
    const double seconds = worker.seconds + AloneSeconds(cost, worker, request);
    if (best.slices.empty() || seconds < best.seconds) {
      best = {.slices = {{.worker = i, .end = request.tokens}},
              .seconds = seconds,
              .begin = worker.seconds,
              .alone = seconds};
    }
  }
  return best;
}

// Workers in the order in which they could begin, `must` first; workers on CPUs that earlier
// workers already fill come last.
std::vector<int> SoonestFirst(std::span<const OfferedWorker> offered, int must) {
  std::vector<int> order(offered.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](int i) {
    const OfferedWorker& worker = offered[static_cast<size_t>(i)];
    return std::tuple(i != must, worker.slice_seconds, -worker.speed, i);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
  std::map<uint64_t, double> taken;  // share taken of each group's CPUs
  std::vector<int> free, crowded;
  for (const int i : order) {
    const OfferedWorker& worker = offered[static_cast<size_t>(i)];
    const auto [share, is_first] = taken.try_emplace(worker.cpu_group, 0);
    share->second += worker.cpu_share;
    const bool has_room = worker.cpu_group == 0 || is_first || share->second <= kWholeCpus;
    (has_room ? free : crowded).push_back(i);
  }
  free.insert(free.end(), crowded.begin(), crowded.end());
  return free;
}

// Candidate groups of n ranks, sorted by place: the soonest ranks; and if `must` has cached KV of
// the prompt, also the soonest of the ranks behind it, so that `must` is the first rank.
std::vector<std::vector<int>> Groups(std::span<const OfferedWorker> offered,
                                     std::span<const int> soonest, int must, int n) {
  const auto place = [&](int i) { return offered[static_cast<size_t>(i)].place; };
  std::vector<std::vector<int>> groups;
  const auto add = [&](std::vector<int> ranks) {
    if (static_cast<int>(ranks.size()) < n) return;
    ranks.resize(static_cast<size_t>(n));
    std::sort(ranks.begin(), ranks.end(), [&](int a, int b) { return place(a) < place(b); });
    groups.push_back(std::move(ranks));
  };
  add({soonest.begin(), soonest.end()});
  if (must < 0 || offered[static_cast<size_t>(must)].cached == 0) return groups;
  std::vector<int> behind;
  std::copy_if(soonest.begin(), soonest.end(), std::back_inserter(behind),
               [&](int i) { return place(i) >= place(must); });
  add(std::move(behind));
  return groups;
}

// Cached tokens that the plan assumes for the first rank: limited, so that the rank can still
// compute its slice if the cached pages are gone.
int CachedOf(const OfferedWorker& first, int tokens) {
  return first.cached < tokens && first.cached <= first.max_slice_tokens / 2 ? first.cached : 0;
}

}  // namespace

RelayPlan PlanRelay(const PrefillCost& cost, const PlanRecord& record,
                    std::span<const OfferedWorker> offered, const RelayPlanRequest& request) {
  BATON_CHECK(!offered.empty() && request.tokens > 0);
  RelayPlan best = Alone(cost, offered, request);
  const double alone = best.seconds;
  const OfferedWorker& single = offered[static_cast<size_t>(best.slices.front().worker)];
  const double alone_work = AloneSeconds(cost, single, request) * single.speed;
  const double alone_delayed = alone_work / single.speed * single.passed;
  const bool forced = request.rules.min_ranks > 1;
  // Prices: seconds to the first token, as predictions of the kind turned out, and the delay of
  // other prompts beyond that by one worker.
  const double alone_margin = record.margin(request.tokens, 1);
  double min_price = forced ? std::numeric_limits<double>::infinity() : alone * alone_margin;
  const auto price_of = [&](const std::vector<int>& ranks, double begin, double taken) {
    double work = 0;     // a rank is occupied until the last one is done
    double delayed = 0;  // total delay of other prompts
    for (const int rank : ranks) {
      work += taken * offered[static_cast<size_t>(rank)].speed;
      delayed += taken * offered[static_cast<size_t>(rank)].passed;
    }
    return begin * alone_margin + taken +
           std::max(0.0, work - alone_work * alone_margin) * request.waiting +
           std::max(0.0, delayed - alone_delayed * alone_margin);
  };
  const std::vector<int> soonest = SoonestFirst(offered, request.must);
  // Many ranks first: where they are the best, fewer ones need not be planned.
  for (int n = std::min(request.rules.max_ranks, static_cast<int>(offered.size()));
       n >= std::max(2, request.rules.min_ranks); --n) {
    const double margin = record.margin(request.tokens, n);
    for (const std::vector<int>& ranks : Groups(offered, soonest, request.must, n)) {
      const int cached = CachedOf(offered[static_cast<size_t>(ranks.front())], request.tokens);
      double begin = 0;
      for (const int rank : ranks)
        begin = std::max(begin, offered[static_cast<size_t>(rank)].slice_seconds);
      const double min_seconds = MinSeconds(cost, offered, ranks, request, cached);
      if (price_of(ranks, begin, min_seconds * margin) >= min_price) continue;
      RelayPlan relay = Together(cost, offered, ranks, request, cached);
      if (relay.slices.empty() && cached > 0) relay = Together(cost, offered, ranks, request, 0);
      if (relay.slices.empty()) continue;
      const double price = price_of(ranks, begin, relay.seconds * margin);
      if (price >= min_price) continue;
      min_price = price;
      best = std::move(relay);
      best.begin = begin;
      best.seconds += begin;
      best.saved = alone * alone_margin - price;
    }
  }
  best.alone = alone;
  return best;
}

}  // namespace baton
