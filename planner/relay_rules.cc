#include "planner/relay_rules.h"

namespace baton {

void DeclareRelayRules(RelayRules* rules, Settings* settings) {
  settings->Int("router.relay_min_tokens", &rules->min_tokens, 0, 1 << 24,
                "prompts from so many tokens on may be prefilled by several workers; 0 = none");
  settings->Int("router.relay_max_ranks", &rules->max_ranks, 1, 64,
                "max workers that share a prompt");
  RelayLab& lab = rules->lab;
  settings->Int("lab.relay_min_ranks", &lab.min_ranks, 1, 64,
                "share such prompts among so many where they are there, whatever is predicted");
  settings->Choice<std::optional<RelayPush>>(
      "lab.relay_push", &lab.push,
      {{"auto", std::nullopt}, {"all", RelayPush::kAll}, {"tail", RelayPush::kTail}},
      "which workers that share a prompt hand KV to the decode worker: each its own, the last all "
      "of it, or what is sooner by their links");
  settings->Choice<PartitionMode>("lab.partition", &lab.partition,
                                  {{"closed", PartitionMode::kClosed},
                                   {"table", PartitionMode::kTable},
                                   {"even", PartitionMode::kEven}},
                                  "how the slices of a shared prompt are found: from measured "
                                  "costs, from a tuned table, all even");
}

}  // namespace baton
