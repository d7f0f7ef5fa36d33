// Rules of relays: which prompts several workers prefill, and how many workers. Plain data, set at
// the start of the router's process.
#pragma once

#include <memory>

#include "common/settings.h"
#include "planner/relay_sharing.h"

namespace baton {

struct RelayRules {
  // Prompts (after a failover: with the tokens so far) of so many tokens and more are prefilled by
  // several workers, the ranks of a relay, where that is predicted to be sooner; 0: none.
  int min_tokens = 0;
  int min_ranks = 1;  // above 1: a relay wherever possible, whatever is predicted
  int max_ranks = 2;
  std::shared_ptr<const RelaySharing> sharing = std::make_shared<RelaySharing>();  // never null
};

// Declares router.relay_*.
void DeclareRelayRules(RelayRules* rules, Settings* settings);

}  // namespace baton
