// vdpbf16ps, for the policies of linear layers and attention. Kernel units with AVX512_BF16 only.
#pragma once

#include <immintrin.h>

namespace baton {
namespace {

struct Vdpbf16 {
  static __m512 Dot(__m512 acc, __m512 a, __m512 b) {
    return _mm512_dpbf16_ps(acc, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, b));
  }
};

}  // namespace
}  // namespace baton
