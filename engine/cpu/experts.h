// The MLP of a sparse layer (mixture of experts) on the bf16 CPU backend. Every row chooses experts
// by its router logits (expert_rows.h); the rows of each expert go through its MLP together, and
// every row mixes what its experts made of it in a fixed order. So the bits of a row do not depend
// on which experts the other rows choose.
//
// An expert's rows are gathered, and their norms taken, where its first layer packs them. All
// experts' work is two linear layers' regions, however few rows each has. Engine thread; allocates
// nothing in a step: buffers are sized for the worst case.
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
  // Asks the arena for buffers of steps of at most `max_rows` rows; both outlive this.
  Experts(const ExpertsDesc& desc, int hidden, int max_rows, Arena& arena);

  // Room in the kernels for whatever rows choose; once, with the weights of any sparse layer.
  void Reserve(const ExpertsWeights& weights, LinearKernels& linear, ComputePool& pool) const;

  // y = the MLP of the norms of rows [0, rows) of x, or y = bf16(y + it) if `add`. y may be x.
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
  RouterRule rule_;          // its corrections: those of the layer at hand
  float* logits_ = nullptr;  // (rows, logits_stride_): router, then the shared expert's gate
  int64_t logits_stride_;
  Route* routes_ = nullptr;           // (rows, per_token)
  int32_t* slots_ = nullptr;          // (rows, per_token): the row's place among all rows by expert
  int32_t* rows_ = nullptr;           // (rows * per_token), by expert: the row in each slot
  Activations inner_;                 // (rows * per_token, intermediate), by expert
  Activations outputs_;               // (rows * per_token, hidden), by expert
  Activations shared_inner_;          // (rows, shared_intermediate)
  Activations shared_;                // (rows, hidden)
  std::vector<int32_t> first_slots_;  // (n + 1) of each expert
  std::vector<LinearArgs> layers_;    // room for all experts
};

}  // namespace baton
