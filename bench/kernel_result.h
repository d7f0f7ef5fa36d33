// One line of a kernel benchmark: a measured value and the limit that the machine sets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

// Memory that a bandwidth probe reads: far more than caches hold.
inline constexpr int64_t kProbeBytes = int64_t{1} << 30;

struct Spread {
  double min = 0, median = 0, max = 0;
};

struct KernelResult {
  std::string name;
  double value = 0;
  std::string unit;
  double limit = 0;         // in the same unit, measured in the same run; 0: unknown
  std::string digest = {};  // output digest, where equal bits are promised
  std::string note = {};    // a remark for the table's reader
  double seconds = 0;       // one run of the measured work; 0: not a run
  double whole = 0;         // the total that the value is a part of, in the same unit; 0: none
  // Lines with samples (probed_sample.h) tell how many were taken and how many count, and the
  // spread of all of them and of the limits by their probes, in the line's unit.
  int n_samples = 0, n_counted = 0;
  Spread samples = {}, limits = {};
  std::string not_counted = {};  // why the line does not count; empty: it counts
};

// One line of text each. A line that does not count is marked and tells no share of its limit.
std::string KernelTable(std::string_view title, const std::vector<KernelResult>& results);
// The object every bench command prints as its last line with --json. Lines with samples say
// whether they count ("counted", and "reason" where not); only those that do have a
// "percent_of_limit".
std::string KernelJson(std::string_view numerics_id, const std::vector<KernelResult>& results);
void PrintKernelTable(std::string_view title, const std::vector<KernelResult>& results);
void PrintKernelJson(std::string_view numerics_id, const std::vector<KernelResult>& results);

}  // namespace baton
