#include "engine/step/engine_options.h"

namespace baton {

KvType EngineOptions::kv_type() const {
  return dtype == "fp32" ? KvType::kFp32 : kv_dtype == "int8" ? KvType::kInt8 : KvType::kBf16;
}

void DeclareEngine(EngineOptions* options, Settings* settings) {
  settings->Choice("kv.dtype", &options->kv_dtype, {"bf16", "int8"},
                   "type of cached keys and values; int8 has a scale per token and head");
  settings->Choice("model.dtype", &options->dtype, {"auto", "bf16", "int8", "int4", "fp32"},
                   "type of the weights; auto = bf16");
  settings->Int("model.int4_group", &options->int4_group, 32, 128,
                "weights that share a scale with dtype int4: 32, 64, 128");
  settings->Choice("model.isa", &options->isa, {"auto", "avx2", "avx512", "avx512bf16", "amx"},
                   "instruction set of the kernels");
  settings->Text("model.weight_cache", &options->cache_dir,
                 "folder of packed weights, ours alone (mode 0700); empty = ~/.cache/baton");
  settings->Bytes("model.weight_cache_bytes", &options->cache_bytes, 0, int64_t{1} << 50,
                  "bound of that folder, the least lately used weights go first; 0 = none");
  settings->Int("model.max_context", &options->max_context, 0, 1 << 24,
                "tokens of prompt and output; 0 = the model's own");
  settings->Int("model.page_tokens", &options->page_tokens, 16, 64,
                "tokens per KV page: 16, 32, 64");
  settings->Int("model.random_seed", &options->random_seed, 0, INT32_MAX, "of random: weights");
  settings->Int("prefill.max_slice_tokens", &options->limits.max_slice_tokens, 64, 1 << 20,
                "max tokens of a prompt that a worker computes at once as one of several");
}

}  // namespace baton
