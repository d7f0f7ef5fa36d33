#include "tests/engine/cpu/zmm_operations.h"

namespace baton {

constexpr ZmmOperations kMachineZmm = kZmm;

}  // namespace baton
