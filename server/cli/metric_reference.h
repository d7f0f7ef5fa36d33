// docs/METRICS.md, from the tables by which the series are fed. Pure function, any thread.
#pragma once

#include <span>
#include <string>

#include "common/metric_declaration.h"

namespace baton {

std::span<const MetricSection> MetricSections();
std::string MetricReference();
std::string MetricList();  // a line each, for a terminal and for scripts: name, type, labels

}  // namespace baton
