#include "engine/cpu/elementwise_rows.h"

namespace baton {

const ElementwiseRows& ElementwiseRowsAvx2() {
  static constexpr ElementwiseRows kRows = {RmsNorm, Rope};
  return kRows;
}

}  // namespace baton
