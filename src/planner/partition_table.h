// Tuned partitions on file: what `baton tune` writes and a router reads (YAML). A table is good for
// one model on one kind of machine, and for the numbers of ranks it has.
//
//   model: llama-3.2-1b
//   model_fingerprint: 0123456789abcdef
//   numerics_id: cpu-x86
//   cost: {layers: 16, token: 1.2e-05, pair: 3.4e-10, ...}   of a layer, in seconds; may be missing
//   ranks:
//     2:
//       - {tokens: 2048, ratios: [0.55, 0.45]}
//       - {tokens: 4096, ratios: [0.53, 0.47]}
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "planner/partition.h"
#include "planner/prefill_cost.h"

namespace baton {

struct PartitionTable {
  std::string model{};  // its name, for people
  uint64_t model_fingerprint = 0;
  std::string numerics_id{};
  std::optional<PrefillCost> cost{};                      // of the worker it was tuned on
  std::map<int, std::vector<PartitionEntry>> of_ranks{};  // ascending in tokens

  // Real-valued slices; none where the table has nothing for so many ranks.
  std::vector<double> Slices(double tokens, int ranks) const;
};

// origin: the file's name, for errors, which say line and field.
absl::StatusOr<PartitionTable> ParsePartitionTable(const std::string& yaml,
                                                   const std::string& origin);
std::string PartitionTableText(const PartitionTable& table);

}  // namespace baton
