// A picture of a load run's latencies as SVG: how TTFT and ITL are distributed, with their
// percentiles; and of conversations, how TTFT falls with what was found cached. Pure function.
#pragma once

#include <string>

#include "bench/load/load_summary.h"
#include "bench/load/session_summary.h"

namespace baton {

// Two histograms over logarithmic axes of milliseconds. An empty distribution says so. sessions:
// each of their later turns is a dot, TTFT over the share of its prompt that was cached, with
// medians of tenths; null: no conversations.
std::string LatencyPlot(const LoadSummary& sum, const std::string& label,
                        const SessionSummary* sessions = nullptr);

}  // namespace baton
