// The inner loop of QuantizeOutput (weight_quantizer.h), a kernel unit.
#pragma once

#include <cstdint>

namespace baton {

// Quantises n weights to 8 or 4 bit integers; returns their scale, 0 if all are (nearly) zero.
// Needs the MXCSR of numerics v1.
float QuantizeGroup(const float* weights, int64_t n, bool is_int8, int8_t* values);

}  // namespace baton
