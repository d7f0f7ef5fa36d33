// Loops of one single instruction, for the peak that machine_probe measures. One kernel unit per
// ISA path.
#pragma once

#include <cstdint>

namespace baton {

// Multiplies and adds `iterations` times on registers; operands: 1,024 floats, 64-byte aligned,
// random (zeros are faster on some machines). Returns a value that depends on every sum.
struct PeakKernel {
  int64_t flops_per_iteration;  // a multiply-add counts twice
  float (*run)(const float* operands, int64_t iterations);
};

extern const PeakKernel kPeakAvx2;
extern const PeakKernel kPeakAvx512;
extern const PeakKernel kPeakAvx512Bf16;
extern const PeakKernel kPeakAmx;
// Integer products; Vnni needs AVX-512 VNNI.
extern const PeakKernel kPeakIntegerAvx2;
extern const PeakKernel kPeakInt4Avx2;  // for paths whose int4 weights use other instructions than
                                        // int8
extern const PeakKernel kPeakIntegerAvx512;
extern const PeakKernel kPeakIntegerVnni;
extern const PeakKernel kPeakIntegerAmx;

// Ways to read [from, from + bytes), 64-byte aligned, bytes a multiple of kReadUnit, with AVX2
// loads: as several parallel streams, some with prefetches ahead. The fastest way differs among
// machines: a prefetch hurts on Zen 4; on Ice Lake sixteen streams with a prefetch are 15 to 30 %
// faster than one stream or four.
inline constexpr int64_t kReadUnit = 2048;
inline constexpr int kReadWays = 5;
extern uint64_t (*const kRead[kReadWays])(const void* from, int64_t bytes);

}  // namespace baton
