#include "tests/engine/cpu/zmm_operations.h"

namespace baton {

constexpr ZmmOperations kEmulatedZmm = kZmm;

}  // namespace baton
