#include "engine/cpu/elementwise_rows.h"
#include "tests/engine/emulated_kernels.h"

namespace baton {

const ElementwiseRows& EmulatedElementwiseRows() {
  static constexpr ElementwiseRows kRows = {RmsNorm,    LayerNorm, AddRow,  ScaleRow,
                                            SoftCapRow, Rope,      Quantize};
  return kRows;
}

}  // namespace baton
