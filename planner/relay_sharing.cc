#include "planner/relay_sharing.h"

#include "planner/partition.h"

namespace baton {

std::vector<double> RelaySharing::Slices(const PrefillCost& cost, const ChainLink& link,
                                         double tokens, double prefix,
                                         std::span<const double> speeds, double handed_on) const {
  return ClosedForm(cost, link, tokens, prefix, speeds, handed_on);
}

RelayPush RelaySharing::Push(const PrefillCost& cost, const PushedChain& chain) const {
  return ChoosePush(cost, chain).push;
}

}  // namespace baton
