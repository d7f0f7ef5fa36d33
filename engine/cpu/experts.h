// The MLP of a sparse layer (mixture of experts) on the bf16 CPU backend. Every row chooses experts
// by its router logits (expert_rows.h); the rows of each expert go through its MLP together, and
// every row sums the outputs of its experts in a fixed order. So the bits of a row do not depend on
// the experts that other rows choose.
//
// The first layer of an expert gathers the expert's rows and takes their norms while it packs them.
// The work of all experts is two linear layers' regions, however few rows each expert has. Engine
// thread; allocates nothing in a step: buffers are sized for the worst case.
#pragma once

#include <vector>

#include "engine/cpu/activations.h"
#include "engine/cpu/cpu_weights.h"
#include "engine/cpu/linear/linear.h"
#include "engine/cpu/rows/expert_rows.h"
#include "engine/model/experts_desc.h"

namespace baton {

class Experts {
 public:
  // Requests buffers for steps of at most `max_rows` rows from the arena. `desc` and `arena`
  // outlive this object.
  Experts(const ExpertsDesc& desc, int hidden, int max_rows, Arena& arena);

  // Reserves scratch in the kernels for any choice of experts. Called once, with the weights of any
  // sparse layer.
  void Reserve(const ExpertsWeights& weights, LinearKernels& linear, ComputePool& pool) const;

  // Computes m = the MLP of the norms of rows [0, rows) of x. y = m, or y = bf16(y + m) if `add`. y
  // may be x.
  void Run(const ExpertsWeights& weights, const Activations& x, const RowNorm& norm, int rows,
           bool add, const Activations& y, LinearKernels& linear, ComputePool& pool);

 private:
  void Choose(const ExpertsWeights& weights, const Activations& x, const RowNorm& norm, int rows,
              LinearKernels& linear, ComputePool& pool);
  void PlaceRows(int rows);
  void RunMlps(const ExpertsWeights& weights, const Activations& x, const RowNorm& norm, int rows,
               LinearKernels& linear, ComputePool& pool);
  void Mix(int rows, bool add, const Activations& y, ComputePool& pool);

  const ExpertsDesc& desc_;
  int hidden_;
  int max_rows_;
  RouterRule rule_;          // corrections: set to those of the current layer
  float* logits_ = nullptr;  // (rows, logits_stride_): router, then the shared expert's gate
  int64_t logits_stride_;
  Route* routes_ = nullptr;           // (rows, per_token)
  int32_t* slots_ = nullptr;          // (rows, per_token): slot of the row in the list by expert
  int32_t* rows_ = nullptr;           // (rows * per_token): row in each slot, ordered by expert
  Activations inner_;                 // (rows * per_token, intermediate), ordered by expert
  Activations outputs_;               // (rows * per_token, hidden), ordered by expert
  Activations shared_inner_;          // (rows, shared_intermediate)
  Activations shared_;                // (rows, hidden)
  std::vector<int32_t> first_slots_;  // (n + 1) first slot of each expert
  std::vector<LinearArgs> layers_;    // room for the layers of all experts
};

}  // namespace baton
