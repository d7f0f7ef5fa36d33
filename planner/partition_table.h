// Tuned partitions on file: written by `baton tune`, read by routers and workers (YAML). A table is
// valid for one model on one kind of machine, and for the numbers of ranks it lists; its costs are
// valid for workers with the same number of compute threads.
//
//   model: llama-3.2-1b
//   model_fingerprint: 0123456789abcdef
//   numerics_id: cpu-x86
//   # costs of a layer, in seconds; optional
//   cost: {threads: 2, layers: 16, token: 1.2e-05, pair: 3.4e-10, ...}
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

#include "common/prefill_cost.h"
#include "common/status.h"
#include "planner/partition.h"

namespace baton {

struct PartitionTable {
  std::string model{};  // name for people
  uint64_t model_fingerprint = 0;
  std::string numerics_id{};
  std::optional<PrefillCost> cost{};  // costs of the worker it was tuned on
  int cost_threads = 0;               // compute threads of that worker
  // Entries by number of ranks, ascending in tokens.
  std::map<int, std::vector<PartitionEntry>> of_ranks{};

  // Returns the slices of a prompt in tokens, not rounded (ratios by InterpolateRatios); empty if
  // the table has no entry for this number of ranks.
  std::vector<double> Slices(double tokens, int ranks) const;
};

// A worker that wants to start with a table's costs.
struct CostUser {
  uint64_t model_fingerprint = 0;
  std::string numerics_id{};
  int n_layers = 0;
  int threads = 0;
};
// Returns the table's costs for this worker. FailedPrecondition: the table is tuned for another
// model, numerics or number of threads, or has no costs; the error says what to change. origin: as
// below.
absl::StatusOr<PrefillCost> CostFor(const CostUser& user, const PartitionTable& table,
                                    const std::string& origin);

// Reads a table. origin: name of the file for errors. InvalidArgument: not YAML, longer than 1 MiB,
// a field that is missing or out of range; the error names line and field.
absl::StatusOr<PartitionTable> ParsePartitionTable(const std::string& yaml,
                                                   const std::string& origin);
// Returns the text that ParsePartitionTable reads back.
std::string PartitionTableText(const PartitionTable& table);

}  // namespace baton
