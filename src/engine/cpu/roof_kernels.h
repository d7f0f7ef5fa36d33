// Loops that do nothing but one instruction: the roof that machine_probe measures. One kernel unit
// per ISA path.
#pragma once

#include <cstdint>

namespace baton {

// Multiplies and adds `iterations` times on registers; operands: 1,024 floats, 64-byte aligned,
// random (zeros are faster on some machines). Returns something that depends on every sum.
struct RoofKernel {
  int64_t flops_per_iteration;
  float (*run)(const float* operands, int64_t iterations);
};

extern const RoofKernel kRoofAvx2;
extern const RoofKernel kRoofAvx512;
extern const RoofKernel kRoofAvx512Bf16;
extern const RoofKernel kRoofAmx;

// Reads [from, from + bytes), 64-byte aligned, bytes a multiple of 2,048, with AVX2 loads: as one
// linear stream or as four parallel ones, the latter also with prefetches ahead.
uint64_t ReadLinear(const void* from, int64_t bytes);
uint64_t ReadFourStreams(const void* from, int64_t bytes);
uint64_t ReadFourStreamsPrefetched(const void* from, int64_t bytes);

}  // namespace baton
