// Linear layers on explicit kernel tables: what MakeLinearKernels builds on, and how tests run
// kernels whose instructions are emulated.
#pragma once

#include <memory>

#include "common/status.h"
#include "engine/cpu/linear.h"

namespace baton {

// one_row serves jobs of a single row, rows all others. Both outlive the kernels.
std::unique_ptr<LinearKernels> MakeLinearKernelsOf(Isa isa, const LinearKernelTable& one_row,
                                                   const LinearKernelTable& rows);

// Compares 4,096 outputs of wide-ranging inputs with the scalar FMA form, bit by bit.
absl::Status SelfTestLinear(LinearKernels& kernels);

}  // namespace baton
