#include "engine/cpu/rows/elementwise_rows.h"
#include "tests/engine/cpu/emulated_kernels.h"

namespace baton {

const ElementwiseRows& EmulatedElementwiseRows() {
  static constexpr ElementwiseRows kRows = {RmsNorm,    LayerNorm, AddRow,  ScaleRow,
                                            SoftCapRow, Rope,      Quantize};
  return kRows;
}

}  // namespace baton
