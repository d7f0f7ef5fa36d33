// The median that benchmarks print. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace baton {

// Returns the upper of the two in the middle where there are two. At least one value.
inline double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace baton
