// One line of a kernel benchmark: a measured value beside the limit that the machine sets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace baton {

// Memory that a bandwidth probe reads: far more than caches hold.
inline constexpr int64_t kProbeBytes = int64_t{1} << 30;

struct KernelResult {
  std::string name;
  double value = 0;
  std::string unit;
  double limit = 0;         // in the same unit, measured in the same run; 0 = not known
  std::string digest = {};  // of the output, where equal bits are promised
  std::string note = {};    // for the table's reader
  double seconds = 0;       // of one run of what was measured; 0 = not a run
};

// An error if the value is above its limit: then the limit was not measured right.
absl::Status CheckBelowLimit(const KernelResult& result);

void PrintKernelTable(std::string_view title, const std::vector<KernelResult>& results);
// The object every bench command prints as its last line with --json.
void PrintKernelJson(std::string_view numerics_id, const std::vector<KernelResult>& results);

}  // namespace baton
