// `baton bench relay --simulate`: prefill by several workers on modelled machines and links; tables
// of every scheme, and the claims that a simulation can check. Every line says "simulation".
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace baton {

struct RelaySimulationOptions {
  std::vector<std::string> shapes = {"a100-llama-7b", "h100-llama-3-8b"};
  std::vector<double> links = {300e9, 50e9, 25e9, 10e9, 1e9};  // bytes/s per direction
  std::vector<int> ranks = {2, 3, 4, 8};
  std::vector<double> tokens = {2048, 4096, 8192, 16384, 32768, 65536, 131072};
  bool claims = true;  // prints also claims that do not come from the table
  bool json = false;
};

absl::Status RunRelaySimulation(const RelaySimulationOptions& options);

}  // namespace baton
