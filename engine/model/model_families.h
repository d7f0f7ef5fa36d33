// Properties that each family fixes in transformers' code rather than in its config.json, as data
// for the config's reader. ModelDesc holds the result. Constants: any thread.
#pragma once

#include <string_view>

#include "engine/model/model_desc.h"

namespace baton {

struct Family {
  std::string_view architecture, model_type;
  const TensorNames* names = &kLlamaNames;

  // Names of fields that differ between families.
  std::string_view kv_heads = "num_key_value_heads";
  std::string_view intermediate = "intermediate_size";
  std::string_view norm_eps = "rms_norm_eps";
  std::string_view activation_field = "hidden_act";

  // Biases of the attention. kConfigured: attention_bias, for all four; kQkvConfigured: qkv_bias.
  enum class Biases { kNone, kConfigured, kQkv, kQkvConfigured } biases = Biases::kNone;
  bool reads_mlp_bias = false;  // false: no MLP bias, even if the config has the field
  bool qk_norm = false;
  int default_head_dim = 0;  // 0: hidden_size / num_attention_heads
  bool tied_by_default = false;
  Activation activation = Activation::kSilu;

  // Layers with a sliding window if layer_types is absent: none; all; all but every n-th
  // (sliding_window_pattern). The last three need use_sliding_window (without it layer_types may
  // not name a window either): layers from max_window_layers on; all; an error (transformers has
  // had several rules).
  enum class Windows { kNone, kAllLayers, kPattern, kUpperIfUsed, kAllIfUsed, kNamedIfUsed };
  Windows windows = Windows::kNone;
  int default_window = 4096;
  int default_window_pattern = 0;

  ExpertFields experts = ExpertFields::kNone;
  bool is_latent = false;  // DeepSeek's attention

  // Gemma: embeddings times sqrt(hidden_size), norms times 1 + weight.
  bool is_gemma = false;
  bool output_norms = false;
  int default_query_scalar = 0;  // scores scaled by query_pre_attn_scalar^-1/2; 0: by head_dim^-1/2
  bool reads_caps = false;       // attn_logit_softcapping, final_logit_softcapping
  double default_score_cap = 0, default_logit_cap = 0;

  double default_theta = 10000;
  bool window_rope = false;  // layers with a window have their own rope
  bool reads_partial_rotary = false;

  bool has_text_config = false;  // the fields are in an object named text_config
  // Defaults if the config lacks the field; 0: the field is required.
  int default_heads = 0, default_kv_heads = 0, default_vocab = 0, default_positions = 0;

  bool is_falcon = false;  // multi_query, new_decoder_architecture, num_ln_in_parallel_attn
};

inline constexpr Family kGemma3 = {.architecture = "Gemma3ForCausalLM",
                                   .model_type = "gemma3_text",
                                   .names = &kGemma2Names,
                                   .activation_field = "hidden_activation",
                                   .biases = Family::Biases::kConfigured,
                                   .qk_norm = true,
                                   .default_head_dim = 256,
                                   .tied_by_default = true,
                                   .activation = Activation::kGeluTanh,
                                   .windows = Family::Windows::kPattern,
                                   .default_window_pattern = 6,
                                   .is_gemma = true,
                                   .output_norms = true,
                                   .default_query_scalar = 256,
                                   .reads_caps = true,
                                   .default_theta = 1e6,
                                   .window_rope = true};

// A model that also sees images. Published configs omit the fields that are equal in the text part
// of the 4B model and in transformers' class.
constexpr Family Gemma3TextPart() {
  Family family = kGemma3;
  family.architecture = "Gemma3ForConditionalGeneration";
  family.model_type = "gemma3";
  family.names = &kGemma3TextPartNames;
  family.has_text_config = true;
  family.default_heads = 8;
  family.default_kv_heads = 4;
  family.default_vocab = 262208;
  family.default_positions = 131072;
  return family;
}

inline constexpr Family kFamilies[] = {
    {.architecture = "LlamaForCausalLM",
     .model_type = "llama",
     .biases = Family::Biases::kConfigured,
     .reads_mlp_bias = true},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .windows = Family::Windows::kAllLayers},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .biases = Family::Biases::kQkv,
     .windows = Family::Windows::kUpperIfUsed},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .biases = Family::Biases::kConfigured,
     .qk_norm = true,
     .default_head_dim = 128,
     .windows = Family::Windows::kUpperIfUsed},
    {.architecture = "MixtralForCausalLM",
     .model_type = "mixtral",
     .names = &kMixtralNames,
     .windows = Family::Windows::kAllLayers,
     .default_window = 0,
     .experts = ExpertFields::kMixtral},
    {.architecture = "Qwen2MoeForCausalLM",
     .model_type = "qwen2_moe",
     .biases = Family::Biases::kQkvConfigured,
     .windows = Family::Windows::kNamedIfUsed,
     .experts = ExpertFields::kQwen2},
    {.architecture = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .biases = Family::Biases::kConfigured,
     .qk_norm = true,
     .windows = Family::Windows::kAllIfUsed,
     .experts = ExpertFields::kQwen3},
    {.architecture = "DeepseekV2ForCausalLM",
     .model_type = "deepseek_v2",
     .names = &kDeepSeekNames,
     .experts = ExpertFields::kDeepSeekV2,
     .is_latent = true},
    {.architecture = "DeepseekV3ForCausalLM",
     .model_type = "deepseek_v3",
     .names = &kDeepSeekNames,
     .experts = ExpertFields::kDeepSeekV3,
     .is_latent = true},
    {.architecture = "FalconForCausalLM",
     .model_type = "falcon",
     .names = &kFalconNames,
     .kv_heads = "num_kv_heads",
     .intermediate = "ffn_hidden_size",
     .norm_eps = "layer_norm_epsilon",
     .activation_field = "activation",
     .tied_by_default = true,
     .activation = Activation::kGelu,
     .is_falcon = true},
    {.architecture = "GemmaForCausalLM",
     .model_type = "gemma",
     .biases = Family::Biases::kConfigured,
     .default_head_dim = 256,
     .tied_by_default = true,
     .activation = Activation::kGeluTanh,
     .is_gemma = true},
    {.architecture = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .names = &kGemma2Names,
     .activation_field = "hidden_activation",
     .biases = Family::Biases::kConfigured,
     .default_head_dim = 256,
     .tied_by_default = true,
     .activation = Activation::kGeluTanh,
     .windows = Family::Windows::kPattern,
     .default_window_pattern = 2,
     .is_gemma = true,
     .output_norms = true,
     .default_query_scalar = 256,
     .reads_caps = true,
     .default_score_cap = 50,
     .default_logit_cap = 30},
    kGemma3,
    Gemma3TextPart(),
    {.architecture = "Phi3ForCausalLM",
     .model_type = "phi3",
     .names = &kPhi3Names,
     .windows = Family::Windows::kAllLayers,
     .default_window = 0,
     .reads_partial_rotary = true},
};

}  // namespace baton
