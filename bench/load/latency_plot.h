// A picture of a load run's latencies as SVG: how TTFT and ITL are distributed, with their
// percentiles. Pure function.
#pragma once

#include <string>

#include "bench/load/load_summary.h"

namespace baton {

// Two histograms over logarithmic axes of milliseconds. An empty distribution says so.
std::string LatencyPlot(const LoadSummary& sum, const std::string& label);

}  // namespace baton
