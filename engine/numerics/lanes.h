// Sixteen virtual fp32 lanes: the vocabulary in which every operation of numerics v1 that is not a
// dot product is written once, with the same bits on every ISA path and in the scalar reference
// (docs/NUMERICS.md N7). lanes_scalar.h defines the operations.
//
//   template <class L> ... over L = LanesAvx512 (one zmm), LanesAvx2 (two ymm) or float (one lane,
//   for references). All need the MXCSR of the compute pool (threads/mxcsr.h): round to nearest
//   even, FTZ + DAZ.
//
// A kernel unit includes this header and uses `Lanes`, the widest its flags allow. Everything is in
// an anonymous namespace: each unit has its own copy with its own instructions (units compiled with
// other flags must never share an inline function). The float form needs -mfma, so that
// __builtin_fmaf is the instruction, which flushes denormals as MXCSR says; libm would not.
#pragma once

#include "engine/numerics/lanes_scalar.h"
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "engine/numerics/lanes_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "engine/numerics/lanes_avx2.h"
#endif

namespace baton {
namespace {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
using Lanes = LanesAvx512;
#elif defined(__AVX2__) && defined(__FMA__)
using Lanes = LanesAvx2;
#endif

}  // namespace
}  // namespace baton
