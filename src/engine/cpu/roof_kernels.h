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

// Reads [from, from + bytes), bytes a multiple of 512, with AVX2 loads.
uint64_t ReadMemory(const void* from, int64_t bytes);

}  // namespace baton
