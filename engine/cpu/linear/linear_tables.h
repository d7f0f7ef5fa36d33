// Linear layers on explicit kernel tables: the base of MakeLinearKernels, and the way for tests to
// run kernels whose instructions are emulated. Engine thread, as linear.h.
#pragma once

#include <array>
#include <memory>

#include "common/status.h"
#include "engine/cpu/linear/item_order.h"
#include "engine/cpu/linear/linear.h"
#include "engine/cpu/linear/linear_form.h"

namespace baton {

// The kernels of one path, by type of weights and LinearForm; null: a form that never serves this
// type on this path. The tables outlive the kernels made of them.
struct LinearKernelSet {
  using Tables = std::array<const LinearKernelTable*, kLinearForms>;
  Tables bf16 = {}, int8 = {}, int4 = {};
  ItemOrder order = ItemOrder::kInTurn;
};
// The kernels that MakeLinearKernels uses on this machine.
LinearKernelSet KernelSetOf(Isa isa);
std::unique_ptr<LinearKernels> MakeLinearKernelsOf(Isa isa, const LinearKernelSet& set);

// The job for all rows, packed_rows unset.
LinearJob JobOf(const LinearArgs& args);

// Compares 4,096 outputs of wide-ranging inputs with the scalar form, bit by bit, for every type of
// weights. Error: an output differs.
absl::Status SelfTestLinear(LinearKernels& kernels);

}  // namespace baton
