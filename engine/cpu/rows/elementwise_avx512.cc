#include "engine/cpu/rows/elementwise_rows.h"

namespace baton {

const ElementwiseRows& ElementwiseRowsAvx512() {
  static constexpr ElementwiseRows kRows = {RmsNorm,    LayerNorm, AddRow,  ScaleRow,
                                            SoftCapRow, Rope,      Quantize};
  return kRows;
}

}  // namespace baton
