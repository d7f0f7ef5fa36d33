// The kernels of a device that compute steps and slices: their names, and arguments as they are
// when a kernel is launched or captured. DeviceBackend launches them; the emulated device computes
// them by the CPU's engine (emulated/cpu_step_kernels.h).
//
// Pointers are addresses of the device, but for `rows` and `tokens` of sampling, which are memory
// of the host that stays as it is until the kernel is executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/kv/kv_layout.h"
#include "engine/model/model_desc.h"
#include "engine/step/backend.h"
#include "engine/step/step_output.h"

namespace baton {

// Describes what the kernels compute, and their bounds.
struct DeviceModel {
  const ModelDesc* desc = nullptr;
  KvLayout layout;
  std::string numerics_id;
  uint64_t fingerprint = 0;
  std::string unit;  // for logs
  StepLimits limits;
  WeightMemory weights;
};

// Pages and activations, which all kernels but those of sampling use.
struct KernelState {
  std::byte* kv = nullptr;              // (n_pages) the last of which belongs to nobody
  int32_t n_pages = 0, n_page_ids = 0;  // KvPages, with that page
  std::byte* activations = nullptr;     // kActivationBytes: stand for those that lie elsewhere
};
inline constexpr int64_t kActivationBytes = 64;

// Reads the metadata block of a step (metadata_block.h); tokens that are fed come from `sampled`.
struct BeginArguments {
  static constexpr const char* kName = "begin";
  const std::byte* block = nullptr;
  const int32_t* sampled = nullptr;
  KernelState state{};
  // That it was launched for: the block has as many. Its pages differ between launches of a graph.
  int32_t n_rows = 0, n_pieces = 0, n_logits = 0, n_scored = 0;
};
// A layer of the step; the last one also computes the logits of the rows that want them.
struct LayerArguments {
  static constexpr const char* kName = "layer";
  KernelState state{};
  int32_t layer = 0;
  float* logits = nullptr;  // (n_logits, vocab)
};
// Logits of the scored rows [from, to) of the step.
struct ScoredLogitsArguments {
  static constexpr const char* kName = "scored_logits";
  KernelState state{};
  int32_t from = 0, to = 0;
  float* logits = nullptr;  // (to - from, vocab)
};
// Chooses tokens: of row i from logits row i.
struct SampleArguments {
  static constexpr const char* kName = "sample";
  const float* logits = nullptr;
  const RowSampling* rows = nullptr;  // (n) of the host
  int32_t n = 0;
  int32_t* sampled = nullptr;    // (n) tokens to be fed; null: of a slice
  std::byte* results = nullptr;  // sampled_results.h
  int64_t result_bytes = 0;
};
struct ScoreArguments {
  static constexpr const char* kName = "score";
  const float* logits = nullptr;    // (n, vocab)
  const int32_t* tokens = nullptr;  // (n) of the host
  int32_t n = 0;
  int32_t top = 0;
  int64_t end = 0;  // ScoredRows
  std::byte* results = nullptr;
  int64_t result_bytes = 0;
};

struct BeginSliceArguments {
  static constexpr const char* kName = "begin_slice";
  const std::byte* block = nullptr;
  KernelState state{};
  int32_t n_rows = 0, n_logits = 0;
};
// A part of a layer of the slice (Backend).
struct SlicePartArguments {
  static constexpr const char* kName = "slice_part";
  enum Part : int32_t { kProject, kAttend, kFinish };
  KernelState state{};
  Part part = kProject;
  int32_t layer = 0, from = 0, to = 0;
  int32_t end_key = 0;      // kAttend
  float* logits = nullptr;  // (vocab) kFinish, if `to` ends a slice that wants them; else null
};

}  // namespace baton
