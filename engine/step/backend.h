// The interface of an engine (engine/cpu has the CPU's). Called by the engine thread only. Calls
// submit work; a backend may compute it later, in the order of the calls, and a fence tells how far
// it is. A step is two halves, forward and sampling: Begin, RunLayers in ascending runs that cover
// all layers, then Sample, before the next Begin. A prefill that announces KV runs layer by layer;
// a mask that needs the token before may come while the layers run. A slice is one long piece that
// is computed layer by layer, each layer in parts, while steps run in between. Inside layers there
// is no Status, allocation, time, network or log.
//
// Results are written to memory of the caller, who keeps it until the fence of the call is reached
// and reads it then. Everything else that a call is given is read before it returns, but for the
// sampling of rows that look back (RowSampling).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine/kv/kv_pool.h"
#include "engine/model/model_desc.h"
#include "engine/step/engine_options.h"
#include "engine/step/fence.h"
#include "engine/step/step.h"
#include "engine/step/step_output.h"
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
  // The threads that compute, for benchmarks; null if the backend has none.
  virtual ComputePool* compute_pool() { return nullptr; }

  // ---- the timeline: by default that of a backend that computes before it returns ----

  // Steps that may be under way: begun, and not reached.
  virtual int depth() const { return 1; }
  // The fence of the newest submission: a run of layers, a sampling, a part of a slice, or zeroing
  // or copying of pages (KvArena).
  virtual Fence submitted() const { return {}; }
  // True if what was submitted up to the fence is done; what it wrote is in the caller's memory.
  virtual bool reached(Fence fence) { return fence.at == 0; }
  // Calls `wake` once when the fence is reached, on any thread, perhaps inside this call.
  virtual void WakeAt(Fence fence, const std::function<void()>& wake);
  // Returns when no `wake` is running; calls none afterwards.
  virtual void StopWaking() {}
  // Why nothing is computed any more, as the last call of `reached` found it; it stays. Every fence
  // counts as reached then, and what was under way has no results: ask after `reached`, before a
  // result is read. Empty: the engine computes.
  virtual std::optional<std::string> lost() const { return std::nullopt; }

  // ---- memory ----

  // Memory of KV pages, whose zeroing and copying keep the order of the submissions. Errors: those
  // of KvArena::Map.
  virtual absl::StatusOr<std::unique_ptr<KvArena>> NewArena(int64_t bytes);
  // The pages that the steps' page tables name; set once before the first step, and outlive the
  // steps.
  virtual void SetPages(const KvPages& pages) = 0;

  // ---- steps ----

  // A batch of 1 to limits().max_step_tokens tokens. Tokens are fed (FedToken) only if depth() is
  // above 1.
  virtual void Begin(const StepBatch& batch) = 0;
  // Layers [from, to); to == n_layers also runs the final norm and the LM head on the logit rows.
  virtual void RunLayers(int from, int to) = 0;
  // When all layers are submitted: chooses the token of each logit row of the step; rows[i] belongs
  // to the i-th.
  virtual void Sample(std::span<const RowSampling> rows, StepOutput* out) = 0;
  // After Sample, and before the next Begin: out[i] is of the i-th of the rows.
  static constexpr int kScoredAtOnce = 32;  // so that memory for their logits is bounded
  virtual void Score(const ScoredRows& rows, std::span<PromptLogprob> out) = 0;

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
  // Chooses the token after the slice's last row, when its logits are submitted.
  virtual void SampleSlice(const RowSampling& row, StepOutput* out) = 0;

  // ---- logits, for tests and benchmarks: when what was submitted is reached ----

  // (vocab) fp32 logits of the i-th logit row; valid until the next Begin.
  virtual std::span<const float> logits(int i) const = 0;
  // Computes the logits of the scored rows [from, to) of the step, at least one and at most
  // kScoredAtOnce. Returns (to - from, vocab), valid until the next call or Begin; logits(i) stay
  // as they are.
  virtual std::span<const float> ScoredLogits(int from, int to) = 0;
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
