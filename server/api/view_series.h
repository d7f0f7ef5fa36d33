// Series that show the state of the router's process and its cluster when they are read: the rows
// of their table. Front thread.
#pragma once

#include <string_view>
#include <vector>

#include "common/metric_table.h"
#include "router/router_messages.h"
#include "server/api/slo_limits.h"
#include "server/api/text_pool.h"
#include "server/http/http_stats.h"

namespace baton {

struct FrontView {
  ClusterView cluster{};
  bool is_ready = false;
  TextPool::Load text{};  // that waits
  HttpStats http{};
  SloLimits slo{};
};

// vllm, own: labels of vLLM's and of Baton's series; those of Baton begin with the model.
std::vector<MetricRow<FrontView>> ViewRows(const MetricLabels& vllm, const MetricLabels& own);

// Reasons to compute tokens again, below kRecomputeReasons, as metrics name them.
std::string_view RecomputeReasonName(int reason);

}  // namespace baton
