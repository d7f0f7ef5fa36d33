// Linear layers on explicit kernel tables: what MakeLinearKernels builds on, and how tests run
// kernels whose instructions are emulated.
#pragma once

#include <memory>

#include "common/status.h"
#include "engine/cpu/linear.h"

namespace baton {

// The kernels of one path, by type of weights. one_row serves jobs of a single row, rows all
// others. The tables outlive the kernels made of them.
struct LinearKernelSet {
  struct Pair {
    const LinearKernelTable* one_row;
    const LinearKernelTable* rows;
  };
  Pair bf16, int8, int4;
};
// What MakeLinearKernels uses on this machine.
LinearKernelSet KernelSetOf(Isa isa);
std::unique_ptr<LinearKernels> MakeLinearKernelsOf(Isa isa, const LinearKernelSet& set);

// The job of all rows, packed_rows unset.
LinearJob JobOf(const LinearArgs& args);

// Compares 4,096 outputs of wide-ranging inputs with the scalar form, bit by bit, for every type of
// weights.
absl::Status SelfTestLinear(LinearKernels& kernels);

}  // namespace baton
