// The yardstick for the cost of numerics v1's order: linear layers as the engine has them, but with
// one chain of multiply-adds per output from its first k to its last. These bits are not numerics
// v1.
#pragma once

#include "engine/cpu/linear/linear_job.h"

namespace baton {

extern const LinearKernelTable kPlainAvx2;
extern const LinearKernelTable kPlainAvx512;
extern const LinearKernelTable kPlainAvx512Bf16;

}  // namespace baton
