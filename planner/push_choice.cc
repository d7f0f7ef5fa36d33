#include "planner/push_choice.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

// Tolerance of times. The estimate for kAll errs on the high side.
constexpr double kTie = 1.05;

// Seconds from the moment all ranks begin.
struct PushTimes {
  double chain = 0;        // to the first token, without pushes
  double first_token = 0;  // to the first token, with pushes
  double kv_complete = 0;  // at the decode worker
};

PushTimes Estimate(RelayPush push, const PrefillCost& cost, const PushedChain& chain) {
  const size_t n = chain.slices.size();
  BATON_CHECK(n > 1 && chain.speeds.size() == n && chain.sinks.size() == n);
  const auto seconds = [&](double tokens, const ChainLink& link) {
    return cost.kv_bytes * tokens / link.bytes_per_second;
  };
  // Maxima over the ranks, per layer: work, bytes to the next rank, and these bytes beside pushes.
  double work = 0, wire = 0, shared = 0;
  double into_sink = 0;  // pushes of the layer, one after the other
  const double nobodys = chain.prefix - chain.handed_on;
  double before = chain.prefix;
  for (size_t i = 0; i < n; ++i) {
    work = std::max(work, cost.Layer(chain.slices[i], before) / chain.speeds[i]);
    before += chain.slices[i];
    const double own = chain.slices[i] + (i == 0 ? chain.handed_on : 0);
    const double pushed = seconds(own, chain.sinks[i]);
    into_sink += pushed;
    if (i + 1 == n) break;
    const double handed_on = seconds(before - nobodys, chain.link);
    wire = std::max(wire, handed_on);
    shared = std::max(shared, handed_on + pushed);
  }
  const double last_push = seconds(chain.slices.back(), chain.sinks.back());
  PushTimes times;
  times.chain = cost.n_layers * std::max(work, wire);
  if (push == RelayPush::kAll) {
    times.first_token = cost.n_layers * std::max(work, shared);
  } else {
    times.first_token = times.chain;
    into_sink = seconds(before - nobodys, chain.sinks.back());
  }
  // The pushes of a layer begin when it is computed, and the pushes of all layers share one queue.
  const double layer = times.first_token / cost.n_layers;
  times.kv_complete = std::max(times.first_token + last_push, layer + cost.n_layers * into_sink);
  return times;
}

PushChoice Choice(RelayPush push, const PushTimes& times) {
  return {.push = push, .delay = times.first_token - times.chain};
}

}  // namespace

PushChoice PushBy(RelayPush push, const PrefillCost& cost, const PushedChain& chain) {
  return Choice(push, Estimate(push, cost, chain));
}

PushChoice ChoosePush(const PrefillCost& cost, const PushedChain& chain) {
  const PushTimes all = Estimate(RelayPush::kAll, cost, chain);
  const PushTimes tail = Estimate(RelayPush::kTail, cost, chain);
  // With kTail the first token is never later than with kAll.
  const bool by_tail =
      all.first_token > kTie * tail.first_token || all.kv_complete > kTie * tail.kv_complete;
  return by_tail ? Choice(RelayPush::kTail, tail) : Choice(RelayPush::kAll, all);
}

}  // namespace baton
