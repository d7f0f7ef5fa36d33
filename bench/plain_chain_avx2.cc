#include "bench/plain_chain.h"
#include "engine/cpu/gemm_ymm.h"

namespace baton {

namespace {

// One chain per output leaves registers for larger tiles, which are faster.
struct PlainFma : Avx2Fma {
  static constexpr int kDirectRows = 36, kDirectTilesRows = 6;
  static constexpr int DirectVecs(int rows) { return rows <= 2 ? 4 : 2; }
  static constexpr int kTileRows = 6;
};

}  // namespace

const LinearKernelTable kPlainAvx2 = VectorGemm<PlainFma, PlainChain>::Table();

}  // namespace baton
