// Loops that do nothing but one instruction: the peak that machine_probe measures. One kernel unit
// per ISA path.
#pragma once

#include <cstdint>

namespace baton {

// Multiplies and adds `iterations` times on registers; operands: 1,024 floats, 64-byte aligned,
// random (zeros are faster on some machines). Returns something that depends on every sum.
struct PeakKernel {
  int64_t flops_per_iteration;  // multiply-adds, counted twice
  float (*run)(const float* operands, int64_t iterations);
};

extern const PeakKernel kPeakAvx2;
extern const PeakKernel kPeakAvx512;
extern const PeakKernel kPeakAvx512Bf16;
extern const PeakKernel kPeakAmx;
// Of integer products; Vnni needs AVX-512 VNNI.
extern const PeakKernel kPeakIntegerAvx2;
extern const PeakKernel kPeakInt4Avx2;  // where int4 weights take other instructions than int8
extern const PeakKernel kPeakIntegerAvx512;
extern const PeakKernel kPeakIntegerVnni;
extern const PeakKernel kPeakIntegerAmx;

// Ways of reading [from, from + bytes), 64-byte aligned, bytes a multiple of kReadUnit, with AVX2
// loads: as so many parallel streams, some with prefetches ahead. Which is the fastest differs
// among machines: a prefetch hurts on Zen 4; on Ice Lake sixteen streams with one are 15 to 30 %
// faster than one stream or four.
inline constexpr int64_t kReadUnit = 2048;
inline constexpr int kReadWays = 5;
extern uint64_t (*const kRead[kReadWays])(const void* from, int64_t bytes);

}  // namespace baton
