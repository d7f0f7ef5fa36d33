// The types of packed weights, which name the instruction that multiplies them.
#pragma once

namespace baton {

enum class WeightType { kBf16, kInt8, kInt4 };

}  // namespace baton
