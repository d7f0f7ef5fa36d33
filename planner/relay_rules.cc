#include "planner/relay_rules.h"

namespace baton {

void DeclareRelayRules(RelayRules* rules, Settings* settings) {
  settings->Int("router.relay_min_tokens", &rules->min_tokens, 0, 1 << 24,
                "prompts from so many tokens on may be prefilled by several workers; 0 = none");
  settings->Int("router.relay_max_ranks", &rules->max_ranks, 1, 64,
                "max workers that share a prompt");
}

}  // namespace baton
