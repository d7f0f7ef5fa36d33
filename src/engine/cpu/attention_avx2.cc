#include "engine/cpu/attention_chains.h"

namespace baton {

const AttentionTileKernels& AttentionTileAvx2() {
  static constexpr AttentionTileKernels kKernels = TileKernelsOf<FmaDot>();
  return kKernels;
}

}  // namespace baton
