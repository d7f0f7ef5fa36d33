#include "engine/cpu/cpu_model.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

// The LM head of an int4 model is int8: its errors reach the tokens directly.
WeightFormats FormatsOf(const EngineOptions& options) {
  constexpr WeightFormat kInt8{WeightType::kInt8, 0};
  if (options.dtype == "int8") return {kInt8, kInt8};
  if (options.dtype == "int4") return {{WeightType::kInt4, options.int4_group}, kInt8};
  return {};
}

}  // namespace

CpuModel::CpuModel(const EngineOptions& options, LoadedModel loaded, CpuKernels kernels)
    : desc(std::move(loaded.desc)),
      layout(KvLayout::For(desc, options.kv_type(), options.page_tokens)),
      formats(FormatsOf(options)),
      ropes(std::move(loaded.ropes)),
      rope_digest(loaded.rope_digest),
      source(std::move(loaded.source)),
      compute(std::move(loaded.pool)),
      linear(std::move(kernels.linear)),
      attention(std::move(kernels.attention)),
      elementwise(kernels.elementwise) {}

absl::Status CpuModel::Load(const EngineOptions& options, void (*progress)(void*, double),
                            void* context) {
  RETURN_IF_ERROR(CheckWidths(options.model));
  CacheOptions cache;
  cache.path = options.cache_dir;
  cache.max_bytes = options.cache_bytes;
  cache.n_processes = options.n_processes;
  ASSIGN_OR_RETURN(weights,
                   LoadCpuWeights(desc, *source, formats, cache, *compute, progress, context));
  return absl::OkStatus();
}

absl::Status CpuModel::CheckWidths(const std::string& name) const {
  const auto check = [&](const char* field, int width, int unit) {
    return width % unit == 0
               ? absl::OkStatus()
               : absl::InvalidArgumentError(absl::StrFormat(
                     "%s: %s is %d; the bf16 engine needs a multiple of %d (dtype fp32 takes any)",
                     name, field, width, unit));
  };
  if (desc.latent.rank == 0) return check("head_dim", desc.head_dim, 16);
  RETURN_IF_ERROR(check("qk_rope_head_dim", desc.latent.rotated_dim, 16));
  RETURN_IF_ERROR(check("qk_nope_head_dim", desc.latent.plain_dim, 32));
  RETURN_IF_ERROR(check("q_lora_rank", desc.latent.query_rank, 32));
  return check("kv_lora_rank", desc.latent.rank, 32);
}

}  // namespace baton
