#include "engine/cpu/linear/weight_quantizer.h"

#include <algorithm>

#include "engine/cpu/linear/group_quantizer.h"
#include "engine/threads/mxcsr.h"

namespace baton {

void QuantizeOutput(const float* weights, int64_t k, WeightFormat format, int8_t* values,
                    float* scales) {
  const NumericsMxcsrScope scope;
  const int64_t group = format.GroupK(k);
  for (int64_t begin = 0; begin < k; begin += group) {
    *scales++ = QuantizeGroup(weights + begin, std::min(group, k - begin),
                              format.type == WeightType::kInt8, values + begin);
  }
}

}  // namespace baton
