// A model's weights as the CPU backend reads them: packed matrices (engine/cpu/linear/linear.h),
// bf16 or integers, and fp32 vectors in one WeightsFile. q, k, v are one matrix; gate and up
// alternate in blocks of 16 outputs, so that SwiGLU happens in the epilogue. Read-only once loaded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/weight_source.h"
#include "engine/checkpoint/weights_file.h"
#include "engine/cpu/linear/linear.h"

namespace baton {

struct ExpertWeights {
  PackedWeights gate_up;  // n = 2 * width rounded up to 16
  PackedWeights down;     // k = width
};

// Experts of a sparse layer; empty in other layers.
struct ExpertsWeights {
  PackedWeights router;  // n = number of experts, + 1 with a gate of the shared expert
  const float* corrections = nullptr;  // (experts) in fp32 as stored; null: none
  std::vector<ExpertWeights> experts;
  ExpertWeights shared;  // n = 0: no shared expert
};

// Null pointers if the model lacks the norm. Values are rounded to bf16 first, like biases.
struct NormWeights {
  const float* weight = nullptr;  // factor of the normed values: 1 + the stored weight if the model
                                  // says so
  const float* bias = nullptr;    // LayerNorm only
};

// Latent attention (latent_desc.h): the projections of every head to the latent and back.
struct LatentWeights {
  NormWeights norm;                     // (rank)
  NormWeights query_norm;               // (query_rank), null without query latents
  PackedWeights query_up;               // n = q_width, k = query_rank
  std::vector<PackedWeights> key_up;    // (heads) n = rank, k = plain_dim: transposed
  std::vector<PackedWeights> value_up;  // (heads) n = value_dim, k = rank
};

struct CpuLayerWeights {
  NormWeights attention_norm, mlp_norm, attention_out_norm, mlp_out_norm;  // (hidden)
  NormWeights q_norm, k_norm;                                              // (head_dim)
  // n = q_width + 2 * kv_width; latent attention: q_width (or query_rank) + key_dim
  PackedWeights qkv;
  PackedWeights o;
  PackedWeights gate_up;            // n = 2 * intermediate rounded up to 16; up alone if not gated;
                                    // 0 if sparse
  PackedWeights down;               // k = intermediate
  const float* qkv_bias = nullptr;  // null: no biases
  const float* o_bias = nullptr;
  const float* gate_up_bias = nullptr;
  const float* down_bias = nullptr;
  LatentWeights latent;
  ExpertsWeights experts;  // replaces gate_up and down in sparse layers
};

struct CpuWeights {
  std::unique_ptr<WeightsFile> file;  // owns the memory of all pointers
  std::vector<CpuLayerWeights> layers;
  PackedWeights lm_head;
  NormWeights final_norm;
};

// Formats of the stored matrices. Routers of experts (their choice has too much influence) and the
// matrices between latents and heads (small, some of them transposed) are always bf16.
struct WeightFormats {
  WeightFormat layers;
  WeightFormat lm_head;
  std::string Name() const { return layers.Name() + " " + lm_head.Name(); }
};

// Maps or packs the weights. progress(context, fraction) runs on the calling thread while packing.
absl::StatusOr<CpuWeights> LoadCpuWeights(const ModelDesc& model, const WeightSource& source,
                                          const WeightFormats& formats, const CacheOptions& cache,
                                          ComputePool& pool, void (*progress)(void*, double),
                                          void* progress_context);

}  // namespace baton
