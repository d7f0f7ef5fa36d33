// Tuned partitions on file: what `baton tune` writes, and routers and workers read (YAML). A table
// is good for one model on one kind of machine, and for the numbers of ranks it has; its costs for
// workers with so many compute threads.
//
//   model: llama-3.2-1b
//   model_fingerprint: 0123456789abcdef
//   numerics_id: cpu-x86
//   cost: {threads: 2, layers: 16, token: 1.2e-05, pair: 3.4e-10, ...}   of a layer, in seconds;
//   may
//                                                                        be missing
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
  int cost_threads = 0;                                   // of its engine
  std::map<int, std::vector<PartitionEntry>> of_ranks{};  // ascending in tokens

  // Real-valued slices; none where the table has nothing for so many ranks.
  std::vector<double> Slices(double tokens, int ranks) const;
};

// The worker that wants to begin with a table's costs.
struct CostUser {
  uint64_t model_fingerprint = 0;
  std::string numerics_id{};
  int n_layers = 0;
  int threads = 0;
};
// FailedPrecondition: tuned for another model, numerics or number of threads, or without costs;
// says what to change. origin as below.
absl::StatusOr<PrefillCost> CostFor(const CostUser& user, const PartitionTable& table,
                                    const std::string& origin);

// origin: the file's name, for errors, which say line and field.
absl::StatusOr<PartitionTable> ParsePartitionTable(const std::string& yaml,
                                                   const std::string& origin);
std::string PartitionTableText(const PartitionTable& table);

}  // namespace baton
