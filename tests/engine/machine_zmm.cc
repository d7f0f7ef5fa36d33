#include "tests/engine/zmm_operations.h"

namespace baton {

constexpr ZmmOperations kMachineZmm = kZmm;

}  // namespace baton
