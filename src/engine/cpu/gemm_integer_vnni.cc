// Integer linear layers with vpdpbusd.
#include "engine/cpu/gemm_integer_zmm.h"

namespace baton {
namespace {

struct Vnni : ZmmBytes {
  static Vec Dot(Vec acc, Vec weights, Vec x) { return _mm512_dpbusd_epi32(acc, weights, x); }
};

}  // namespace

constexpr LinearKernelTable kInt8Vnni = IntegerGemm<Vnni, Int8Weights>::Table();
constexpr LinearKernelTable kInt4Vnni = IntegerGemm<Vnni, Int4Weights>::Table();

}  // namespace baton
