// Quantises weights to integers, one scale per output (int8) or per group of k (int4): the scale
// with the smallest squared error among a few candidates. The same bits on every machine.
//
// Weights that are already integers times a scale (of at most 16 significant bits, as bf16 and fp16
// scales are) are reproduced exactly: a model quantised once and loaded again is the same model.
// Pure function, any thread.
#pragma once

#include <cstdint>

#include "engine/cpu/linear/weight_format.h"

namespace baton {

// Quantises one output of weights (k), all finite, to values (k) in [-128, 127] or [-8, 7] and
// scales (ceil(k / format.GroupK(k))). A group of weights that are all (nearly) zero has scale 0.
// format: int8 or int4.
void QuantizeOutput(const float* weights, int64_t k, WeightFormat format, int8_t* values,
                    float* scales);

}  // namespace baton
