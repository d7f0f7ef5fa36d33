#include "engine/cpu/rows/elementwise.h"

#include "engine/cpu/rows/elementwise_table.h"

namespace baton {

const ElementwiseKernels& GetElementwiseKernels(Isa isa) {
  static const ElementwiseKernels avx2 = ElementwiseKernelsOf<ElementwiseRowsAvx2>();
  static const ElementwiseKernels avx512 = ElementwiseKernelsOf<ElementwiseRowsAvx512>();
  return isa == Isa::kAvx2 ? avx2 : avx512;
}

}  // namespace baton
