// Findings about a host's limits and clocks, for `baton doctor`: descriptors, locked memory, huge
// pages, clocks. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/cli/finding.h"

namespace baton {

struct HostFacts {
  uint64_t max_descriptors = 0;
  uint64_t max_locked_bytes = 0;  // UINT64_MAX: no limit
  std::string huge_pages;         // of transparent ones: "always [madvise] never"; empty: not told
  std::string clock_source;       // "tsc"; empty: not told
  bool is_clock_kept = false;     // the kernel says that something keeps the date
  double clock_error_s = 0;       // that it may be off, if so
};

HostFacts ReadHostFacts();
std::vector<Finding> InspectHost(const HostFacts& facts);

}  // namespace baton
