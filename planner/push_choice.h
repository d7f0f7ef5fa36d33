// Who hands a relay's KV to the decode worker: every rank its own slice, or the tail all of it
// (docs/PLANNER.md, push). Sharing is sooner complete where links are fast; on slow ones the heads'
// pushes take from what the chain needs, and the first token would wait. Pure function, any thread.
#pragma once

#include <span>
#include <string_view>

#include "planner/prefill_cost.h"

namespace baton {

enum class RelayPush {
  kAll,   // every rank its own slice
  kTail,  // the tail what the heads handed to it, too
  kNone,  // nothing is handed over: no token follows the first, or the tail decodes
};
inline constexpr int kRelayPushes = 3;
std::string_view NameOf(RelayPush push);  // "all", "tail", "none"

// One chain, as in ChainSeconds, and its links to the decode worker.
struct PushedChain {
  std::span<const double> slices;    // (ranks)
  double prefix = 0;                 // tokens before them, whose KV nobody hands over
  std::span<const double> speeds;    // (ranks)
  ChainLink link;                    // the slowest from rank to rank
  std::span<const ChainLink> sinks;  // (ranks) from each to the decode worker
  double handed_on = 0;              // of the prefix: the first rank does, beside its slice
};

struct PushChoice {
  RelayPush push = RelayPush::kAll;
  double delay = 0;  // seconds by which the first token is later than without pushes
};

// kAll and kTail, each as if it were chosen. The first is taken to share the way out of each rank
// evenly with the chain, though that goes first in our own queues: the network does not know.
PushChoice PushBy(RelayPush push, const PrefillCost& cost, const PushedChain& chain);
// The one with the earlier first token, then with the earlier complete KV; of equals (5 %) kAll.
PushChoice ChoosePush(const PrefillCost& cost, const PushedChain& chain);

}  // namespace baton
