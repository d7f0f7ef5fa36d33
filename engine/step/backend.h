// The interface of an engine (engine/cpu has the CPU's). Called by the engine thread only. A step
// is Begin, RunLayers in ascending runs that cover all layers, then the results are read; a prefill
// that announces KV runs it layer by layer. A slice is one long piece that is computed layer by
// layer, each layer in parts, while steps run in between. Inside a step or a part of a slice there
// is no Status, allocation, time, network or log.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine/kv/kv_pool.h"
#include "engine/model/model_desc.h"
#include "engine/step/engine_options.h"
#include "engine/step/step.h"
#include "engine/threads/compute_pool.h"

namespace baton {

// Packed weights. is_shared: mapped from the cache folder, one copy for all workers of the host.
struct WeightMemory {
  int64_t bytes = 0;
  bool is_shared = false;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const ModelDesc& model() const = 0;
  virtual const KvLayout& kv_layout() const = 0;
  // Id of the numerics: "v1/cpu-x86/bf16/kv-bf16/l2" names the version, the weights (bf16, int8,
  // int4g128) and the KV type. Workers with equal ids give bit-identical logits.
  virtual std::string numerics_id() const = 0;
  // Hash of config and checkpoint tensor bytes; workers exchange KV only if equal.
  virtual uint64_t model_fingerprint() const = 0;
  virtual std::string isa() const = 0;  // the path chosen, for logs and doctor

  virtual StepLimits limits() const = 0;
  virtual WeightMemory weight_memory() const = 0;
  // Threads for work on the logits between steps; null if the backend has none.
  virtual ComputePool* compute_pool() { return nullptr; }

  // The pool whose pages the step's page tables name; set once before the first step. The pool
  // outlives the steps.
  virtual void SetPool(KvPool* pool) = 0;
  // Copies all it needs from the batch, of 1 to limits().max_step_tokens tokens.
  virtual void Begin(const StepBatch& batch) = 0;
  // Layers [from, to); to == n_layers also runs the final norm and the LM head on the logit rows.
  virtual void RunLayers(int from, int to) = 0;
  // (vocab) fp32 logits of the i-th logit row; valid until the next Begin.
  virtual std::span<const float> logits(int i) const = 0;
  // When all layers are done: computes the logits of the scored rows [from, to) of the step, at
  // least one and at most kScoredAtOnce, so that the memory for them is bounded. Returns (to -
  // from, vocab), valid until the next call or Begin; logits(i) stay as they are.
  static constexpr int kScoredAtOnce = 32;
  virtual std::span<const float> ScoredLogits(int from, int to) = 0;

  // ---- slices: a relay rank's share of a prompt ----
  //
  // One slice at a time, with its own activations: steps may run between any two of these calls,
  // and these calls between the layers of a step. The bits equal those of steps. A call takes at
  // most max_step_tokens rows [from, to). All rows of a layer are projected before the first is
  // attended, and finished before the next layer is projected; another order fails a CHECK.

  // batch: one piece of at most max_slice_tokens; logit_rows is empty or names the last row. Copies
  // what it needs, and forgets a slice in progress. The pages of its table stay the caller's, who
  // may abandon a slice at any time.
  virtual void BeginSlice(const StepBatch& batch) = 0;
  // Norm, queries, keys and values of rows [from, to); their KV of this layer is final afterwards.
  virtual void ProjectSlice(int layer, int from, int to) = 0;
  // Optional early attention, while later keys have not arrived: rows [from, to) attend the visible
  // keys before end_key (a multiple of limits().slice_keys; if that is 0, it is not called) that
  // they have not attended yet. The partial softmax is kept for the next call.
  virtual void AttendSlice(int layer, int from, int to, int end_key) = 0;
  // Finishes the layer for rows [from, to): attention over the remaining keys, output projection,
  // MLP. In the last layer only rows with logits are computed (other rows need no call), and the
  // logits are available afterwards.
  virtual void FinishSlice(int layer, int from, int to) = 0;
  // (vocab) logits of the slice's last row; valid until the next BeginSlice.
  virtual std::span<const float> slice_logits() const = 0;
};

// The number of compute threads: `threads`, or for 0 the CPUs of this process by affinity and quota
// (common/cpus.h).
int ComputeThreads(int threads);

// xxh64 of a logits row (little-endian fp32), chained: previous is the digest of the step before, 0
// at first.
uint64_t LogitsDigest(std::span<const float> logits, uint64_t previous);

}  // namespace baton
