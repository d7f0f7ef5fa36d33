// The forward pass of numerics v1 on x86. A layer has three parts, project, attend and finish,
// which a step runs one after the other and a slice (backend.h) part by part, with rows of its
// choice. Families are told apart by the fields of ModelDesc. What a part leaves for the next one
// is in the caller's RowActivations; all else is shared by everybody's parts. Engine thread;
// allocates nothing.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/cpu/activations.h"
#include "engine/cpu/cpu_model.h"
#include "engine/cpu/experts.h"
#include "engine/cpu/step_rows.h"
#include "engine/kv/kv_pool.h"
#include "engine/threads/phase_clock.h"

namespace baton {

// Rows of a step or a slice from one part of a layer to the next.
struct RowActivations {
  Activations x;        // (rows, hidden) the residual stream
  Activations queries;  // (rows, ...) queries after rope; keys and values may lie behind them
  PartialSoftmax kept;  // of a slice: what the queries made of the keys they met so far
  RowActivations From(int row) const {
    return {{x.row(row), x.stride}, {queries.row(row), queries.stride}, kept.From(row)};
  }
};

class ForwardPass {
 public:
  // Asks the arena for what parts of at most max_rows rows need; both outlive this.
  ForwardPass(CpuModel& model, int max_rows, Arena& arena);
  void Ask(RowActivations& to, int rows, Arena& arena) const;
  void Ask(PartialSoftmax& to, int rows, Arena& arena) const;
  // Room in the kernels; once, when the arena is mapped.
  void Reserve();
  void SetPool(KvPool* pool) { kv_ = pool; }

  // The embeddings of rows [first, first + n) of a step; a.x begins with the first of them.
  void Embed(const StepRows& step, int first, int n, const RowActivations& a);
  // Of the same rows: norm, queries, keys and values; K and V are written to the pages.
  void Project(int layer, const StepRows& step, int first, int n, const RowActivations& a);
  // The queries of a batch's rows meet these keys. What those that finish found waits for Finish in
  // rows from first_row on.
  void Attend(int layer, const AttentionBatch& batch, const RowActivations& a, KeyRange keys = {},
              int first_row = 0);
  // Output projection and MLP of n attended rows, added to x.
  void Finish(int layer, int n, const Activations& x);
  // logits (n, vocab) of n rows of x.
  void LmHead(int n, const Activations& x, float* logits);

 private:
  void ProjectLatent(int layer, const StepRows& step, int first, int n, const RowActivations& a);
  void AddAttention(const CpuLayerWeights& w, int n, Epilogue end, const Activations& y);
  void AddMlp(const CpuLayerWeights& w, int n, const Activations& x, const NormWeights& norm,
              Epilogue end, const Activations& y);
  void AddNormedBranch(const NormWeights& w, int n, const Activations& x);
  void RotateAndStore(int layer, const StepRows& step, int row, bf16* qkv);
  void RotateAndStoreLatent(int layer, const StepRows& step, int row, const bf16* queries,
                            bf16* key, bf16* moved);
  void NormHeads(bf16* heads, int n, const NormWeights& w) const;
  RowNorm NormOf(const NormWeights& w) const;
  void CapLogits(int64_t n, float* logits);
  // Of x, or of the norms of its rows.
  void Linear(Phase phase, int n, const Activations& x, const RowNorm& norm, const PackedWeights& w,
              const float* bias, Epilogue epilogue, const Activations& y);
  // Of latents: what QueriesToLatents or LatentsToValues gives.
  void RunHeads(std::span<const LinearArgs> heads);
  std::span<const LinearArgs> QueriesToLatents(const LatentWeights& w, int n,
                                               const Activations& moved);
  std::span<const LinearArgs> LatentsToValues(const LatentWeights& w, int n);
  std::span<const LinearArgs> LayersOfHeads(const std::vector<PackedWeights>& heads, int n,
                                            const Activations& x, int64_t x_width,
                                            const Activations& y, int64_t y_width);
  template <typename Fn>
  void ForRows(int n, const Fn& fn);

  CpuModel& m_;
  const ModelDesc& desc_;
  Epilogue activation_;  // of the MLP
  int max_rows_;
  KvPool* kv_ = nullptr;
  Activations branch_, attended_, mlp_;
  // Of latent attention: queries, and keys if they do not lie behind the queries' latents; what it
  // gives; latents of queries and keys.
  Activations projected_, values_, latents_;
  std::vector<LinearArgs> head_layers_;  // and room for its heads
  std::optional<Experts> experts_;       // of sparse layers
};

}  // namespace baton
