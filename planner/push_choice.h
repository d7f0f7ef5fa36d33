// Chooses the senders of a relay's KV to the decode worker: every rank its own slice, or the tail
// all of it (docs/PLANNER.md, push). With fast links, sending by all ranks completes sooner; on
// slow links the heads' pushes take bandwidth from the chain, and the first token would be delayed.
// Pure function, any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "common/prefill_cost.h"
#include "planner/chain_link.h"

namespace baton {

enum class RelayPush {
  kAll,   // every rank its own slice
  kTail,  // the tail sends all, including the KV that the heads handed to it
  kNone,  // nothing is handed over: no token follows the first, or the tail decodes
};
inline constexpr int kRelayPushes = 3;
inline std::string_view NameOf(RelayPush push) {
  constexpr std::string_view kNames[kRelayPushes] = {"all", "tail", "none"};
  return kNames[static_cast<size_t>(push)];
}

// One chain of two ranks or more, as in ChainSeconds, and its links to the decode worker.
struct PushedChain {
  std::span<const double> slices;    // (ranks) tokens
  double prefix = 0;                 // tokens before, whose KV is not sent
  std::span<const double> speeds;    // (ranks) 1 = the speed that the cost describes
  ChainLink link;                    // slowest link from rank to rank
  std::span<const ChainLink> sinks;  // (ranks) link of each rank to the decode worker
  double handed_on = 0;  // tokens of the prefix that the first rank sends with its slice
};

struct PushChoice {
  RelayPush push = RelayPush::kAll;
  double delay = 0;  // seconds by which pushes delay the first token
};

// Returns `push`, kAll or kTail, with its delay. kAll is assumed to share the outgoing link of each
// rank evenly with the chain: the chain goes first in the worker's own queues, but the network does
// not know.
PushChoice PushBy(RelayPush push, const PrefillCost& cost, const PushedChain& chain);
// Chooses the earlier first token, then the earlier complete KV; kAll if equal (within 5 %).
PushChoice ChoosePush(const PrefillCost& cost, const PushedChain& chain);

}  // namespace baton
