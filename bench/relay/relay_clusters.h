// Modelled workers by name, for simulated relays: published or fitted constants of a model on a
// machine (docs/PAPER.md, simulated). Pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "bench/relay/relay_simulation.h"
#include "common/status.h"

namespace baton {

struct NamedCluster {
  std::string name;
  SimulatedCluster cluster;  // without the link, which the caller sets
};

// a100-llama-7b, a100-llama-13b, a100-llama-30b: the paper's machine and kernel, fitted to its
// Table 3, larger models scaled by their sizes; h100-llama-3-8b: causal kernel.
absl::StatusOr<NamedCluster> ClusterByName(const std::string& name);

}  // namespace baton
