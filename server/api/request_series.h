// Series that a request feeds when it has ended: the rows of their table. Front thread.
#pragma once

#include <vector>

#include "common/metric_table.h"
#include "server/api/finished_request.h"

namespace baton {

// vllm, own: labels of vLLM's and of Baton's series. max_context: tokens.
std::vector<MetricRow<FinishedRequest>> RequestRows(const MetricLabels& vllm,
                                                    const MetricLabels& own, double max_context);

// Whether the attempt that ran last had a plan and brought a token.
bool HasPlan(const FinishedRequest& request);
std::vector<double> PlanErrorBounds();  // of |actual / predicted - 1|

}  // namespace baton
