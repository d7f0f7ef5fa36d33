// Options of an engine: model, numbers, instruction set, bounds. Plain data, set at the start of
// the process.
#pragma once

#include <cstdint>
#include <string>

#include "common/settings.h"
#include "engine/kv/kv_layout.h"

namespace baton {

// A segment of the attention: rows of a slice may stop after so many keys and go on later.
inline constexpr int kSliceKeys = 512;

// Bounds of steps and slices; an engine sets memory of activations aside for them.
struct StepLimits {
  int max_step_tokens = 512;
  int max_slice_tokens = 8192;  // memory is touched only as far as slices use it
  // Rows of a slice attend to their keys in parts, multiples of so many; 0: to all at once.
  int slice_keys = kSliceKeys;
};

struct EngineOptions {
  std::string model;  // folder in Hugging Face layout, .gguf file, or random:<config.json>
  // Type of the weights: auto = bf16; bf16; int8 (per output, activations int8 per token); int4 (in
  // groups, the LM head int8); fp32 (plain reference mode)
  std::string dtype = "auto";
  int int4_group = 128;           // k of one scale: 32, 64, 128
  std::string kv_dtype = "bf16";  // bf16, int8; the plain mode takes bf16 only and has fp32
  std::string isa = "auto";       // auto, avx2, avx512, avx512bf16, amx
  int threads = 0;  // compute threads, the engine thread included; 0 = as ComputeThreads
  int spin_us = 0;  // how long a compute thread spins for work in a step; 0 when cores are shared
  int page_tokens = 64;  // 16, 32, 64
  StepLimits limits{};
  int max_context = 0;                       // tokens of prompt and output; 0 = the model's own
  std::string cache_dir;                     // packed weights; empty = private memory
  int64_t cache_bytes = int64_t{256} << 30;  // of the folder; 0 = no bound
  int n_processes = 1;       // of this machine that load the model; without a folder a copy in each
  uint64_t random_seed = 1;  // seed of random: weights

  KvType kv_type() const;
};

// Declares model.*, kv.* and prefill.max_slice_tokens, which all engines of a cluster share. model,
// threads, spin_us and n_processes are chosen at the start of each. `options` must outlive
// `settings`.
void DeclareEngine(EngineOptions* options, Settings* settings);

}  // namespace baton
