#include "engine/model/model_desc.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "engine/model/json_fields.h"
#include "engine/model/model_families.h"
#include "engine/model/rope_fields.h"
#include "engine/model/text_file.h"

namespace baton {
namespace {

// Limits, far above every published model and low enough that no product of them overflows or
// causes an absurd allocation before the weights prove the size.
constexpr int kMaxLayers = 1024;
constexpr int kMaxWidth = 1 << 18;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kMaxVocab = 1 << 22;
constexpr size_t kMaxConfigBytes = 1 << 20;

// Finds the family by `architectures`, or by model_type if absent; returns the first family after
// an error.
const Family& ReadFamily(JsonFields& fields) {
  const boost::json::value* names = fields.Find("architectures");
  const bool is_one = names != nullptr && names->is_array() && names->get_array().size() == 1 &&
                      names->get_array()[0].is_string();
  const std::string type = names == nullptr ? fields.StringOr("model_type", "") : "";
  std::string known;
  for (const Family& family : kFamilies) {
    const boost::json::string_view name(family.architecture.data(), family.architecture.size());
    if (is_one ? names->get_array()[0] == name : type == family.model_type) return family;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(family.architecture));
  }
  fields.Refuse("architectures", absl::StrCat("supported: one of ", known));
  return kFamilies[0];
}

// transformers 5 writes "dtype", older versions "torch_dtype".
void ReadDtype(JsonFields& fields, ModelDesc& model) {
  const std::string_view field = fields.Has("dtype") ? "dtype" : "torch_dtype";
  const std::string name = fields.StringOr(field, "float32");
  if (name == "bfloat16") {
    model.checkpoint_dtype = Dtype::kBf16;
  } else if (name == "float16") {
    model.checkpoint_dtype = Dtype::kFp16;
  } else if (name == "float32") {
    model.checkpoint_dtype = Dtype::kFp32;
  } else {
    fields.Refuse(field, "supported: bfloat16, float16, float32");
  }
}

// Falcon 7B: one KV head; 40B (new_decoder_architecture): as many as num_kv_heads says.
int ReadKvHeads(JsonFields& fields, const Family& family, int n_heads) {
  if (family.is_falcon && !fields.BoolOr("new_decoder_architecture", false)) {
    return fields.BoolOr("multi_query", true) ? 1 : n_heads;
  }
  const int fallback = family.default_kv_heads > 0 ? family.default_kv_heads : n_heads;
  return fields.IntOr(family.kv_heads, fallback, 1, kMaxHeads);
}

void ReadHeadDim(JsonFields& fields, const Family& family, ModelDesc& model) {
  if (fields.Has("head_dim") || family.default_head_dim > 0) {
    model.head_dim = fields.IntOr("head_dim", family.default_head_dim, 2, kMaxHeadDim);
  } else {
    model.head_dim = model.hidden / model.n_heads;
    if (model.hidden % model.n_heads != 0 || model.head_dim > kMaxHeadDim || model.head_dim < 2) {
      fields.Refuse("hidden_size", absl::StrFormat("without head_dim it must be num_attention_heads"
                                                   " (%d) times a head size from 2 to %d",
                                                   model.n_heads, kMaxHeadDim));
    }
  }
  if (model.head_dim % 2 != 0) {
    fields.Refuse("head_dim", "it must be even: RoPE rotates pairs");
  }
}

// Sets one KV head, the latent; RoPE rotates a part of each query.
void ReadLatentHeads(JsonFields& fields, ModelDesc& model) {
  model.latent = ReadLatent(fields);
  model.n_kv_heads = 1;
  model.head_dim = model.latent.rotated_dim;
}

// Reads a count; `fallback` is the family's default for configs without the field, 0: required.
int ReadCount(JsonFields& fields, std::string_view field, int fallback, int64_t max) {
  return fallback > 0 ? fields.IntOr(field, fallback, 1, max) : fields.Int(field, 1, max);
}

void ReadShape(JsonFields& fields, const Family& family, ModelDesc& model) {
  model.n_layers = fields.Int("num_hidden_layers", 1, kMaxLayers);
  model.hidden = fields.Int("hidden_size", 1, kMaxWidth);
  model.n_heads = ReadCount(fields, "num_attention_heads", family.default_heads, kMaxHeads);
  model.n_kv_heads = ReadKvHeads(fields, family, model.n_heads);
  if (model.n_heads % model.n_kv_heads != 0) {
    fields.Refuse(family.kv_heads,
                  absl::StrFormat("it must divide num_attention_heads, %d", model.n_heads));
  }
  if (family.is_latent) {
    ReadLatentHeads(fields, model);
  } else {
    ReadHeadDim(fields, family, model);
  }
  model.vocab = ReadCount(fields, "vocab_size", family.default_vocab, kMaxVocab);
  if (family.is_falcon) {  // published configs have neither field
    model.intermediate = fields.IntOr(family.intermediate, 4 * model.hidden, 1, 4 * kMaxWidth);
    model.max_positions = fields.IntOr("max_position_embeddings", 2048, 1, kMaxPositions);
  } else {
    model.intermediate = fields.Int(family.intermediate, 1, kMaxWidth);
    model.max_positions =
        ReadCount(fields, "max_position_embeddings", family.default_positions, kMaxPositions);
  }
}

void ReadNorms(JsonFields& fields, const Family& family, ModelDesc& model) {
  model.norm_eps = fields.NumberOr(family.norm_eps, family.is_falcon ? 1e-5 : 1e-6, 0, 1);
  model.qk_norm = family.qk_norm;
  model.layer_norm = family.is_falcon;
  model.norm_plus_one = family.is_gemma;
  model.output_norms = family.output_norms;
}

// Reads a cap: absent: the family's default; null: none.
double ReadCap(JsonFields& fields, std::string_view field, double fallback) {
  return fields.IsNull(field) ? 0 : fields.NumberOr(field, fallback, 1e-3, 1e6);
}

void ReadScales(JsonFields& fields, const Family& family, ModelDesc& model) {
  const int scalar =
      family.default_query_scalar == 0
          ? family.is_latent ? model.latent.query_dim() : model.head_dim
          : fields.IntOr("query_pre_attn_scalar", family.default_query_scalar, 1, kMaxWidth);
  model.score_scale = 1.0 / std::sqrt(static_cast<double>(scalar));
  if (family.is_gemma) model.embedding_scale = std::sqrt(static_cast<double>(model.hidden));
  if (!family.reads_caps) return;
  model.score_cap = ReadCap(fields, "attn_logit_softcapping", family.default_score_cap);
  model.logit_cap = ReadCap(fields, "final_logit_softcapping", family.default_logit_cap);
}

void ReadBiases(JsonFields& fields, const Family& family, ModelDesc& model) {
  if (family.is_falcon) {
    model.o_bias = model.qkv_bias = model.mlp_bias = fields.BoolOr("bias", false);
    return;
  }
  model.o_bias =
      family.biases == Family::Biases::kConfigured && fields.BoolOr("attention_bias", false);
  model.qkv_bias =
      family.biases == Family::Biases::kQkv || model.o_bias ||
      (family.biases == Family::Biases::kQkvConfigured && fields.BoolOr("qkv_bias", true));
  model.mlp_bias = family.reads_mlp_bias && fields.BoolOr("mlp_bias", false);
}

// Attention and MLP in parallel, after one norm or (new_decoder_architecture) one each.
void ReadFalcon(JsonFields& fields, ModelDesc& model) {
  if (fields.BoolOr("alibi", false)) fields.Refuse("alibi", "supported: false");
  const bool is_new = fields.BoolOr("new_decoder_architecture", false);
  if (!is_new && !fields.BoolOr("parallel_attn", true)) {
    fields.Refuse("parallel_attn", "supported: true");
  }
  model.parallel_mlp = true;
  model.gated_mlp = false;
  model.mlp_norm = is_new && fields.IntOr("num_ln_in_parallel_attn", 2, 1, 2) == 2;
  if (model.mlp_norm) model.names = &kFalconTwoNormNames;
}

// The tanh form of GELU is what transformers computes for Gemma even where a config says "gelu".
void ReadActivation(JsonFields& fields, const Family& family, ModelDesc& model) {
  model.activation = family.activation;
  static constexpr std::string_view kSilu[] = {"silu", "swish"}, kGelu[] = {"gelu"},
                                    kGeluTanh[] = {"gelu_pytorch_tanh", "gelu"};
  std::span<const std::string_view> names = kSilu;
  if (family.activation == Activation::kGelu) names = kGelu;
  if (family.activation == Activation::kGeluTanh) names = kGeluTanh;
  const std::string name = fields.StringOr(family.activation_field, names[0]);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    fields.Refuse(family.activation_field, absl::StrCat("supported: ", std::string(names[0])));
  }
}

// Refuses settings that change the computation and are not supported: an error is better than wrong
// tokens.
void RefuseUnsupported(JsonFields& fields) {
  if (fields.BoolOr("use_bidirectional_attention", false)) {
    fields.Refuse("use_bidirectional_attention", "supported: false");
  }
}

void ReadLayerTypes(JsonFields& fields, const boost::json::value& types, int window,
                    ModelDesc& model) {
  const std::string wanted =
      absl::StrFormat("supported: full_attention%s, one of %d layers each%s",
                      window > 0 ? " and sliding_attention" : "", model.n_layers,
                      window > 0 ? "" : " (sliding_window or use_sliding_window says: no window)");
  if (!types.is_array() || types.get_array().size() != model.windows.size()) {
    fields.Refuse("layer_types", wanted);
    return;
  }
  for (int layer = 0; layer < model.n_layers; ++layer) {
    const boost::json::value& type = types.get_array()[layer];
    if (type == "sliding_attention" && window > 0) {
      model.windows[layer] = window;
    } else if (type != "full_attention") {
      fields.Refuse("layer_types", wanted);
    }
  }
}

bool MayHaveWindows(JsonFields& fields, const Family& family) {
  using Windows = Family::Windows;
  const bool only_if_used = family.windows >= Windows::kUpperIfUsed;
  return family.windows != Windows::kNone && !fields.IsNull("sliding_window") &&
         (family.default_window > 0 || fields.Has("sliding_window")) &&
         (!only_if_used || fields.BoolOr("use_sliding_window", false));
}

// sliding_window: absent: the default of families that have one; null: none.
void ReadWindows(JsonFields& fields, const Family& family, ModelDesc& model) {
  using Windows = Family::Windows;
  constexpr int kDefaultFullLayers = 28;
  model.windows.assign(model.n_layers, 0);
  const int window = MayHaveWindows(fields, family)
                         ? fields.IntOr("sliding_window", family.default_window, 1, kMaxPositions)
                         : 0;
  if (const boost::json::value* types = fields.Find("layer_types")) {
    return ReadLayerTypes(fields, *types, window, model);
  }
  if (family.windows == Windows::kNamedIfUsed && window > 0) {
    fields.Refuse("use_sliding_window", "supported: false, or true with layer_types");
  }
  int first = 0, pattern = kMaxLayers + 1;
  if (family.windows == Windows::kUpperIfUsed) {
    first = fields.IntOr("max_window_layers", kDefaultFullLayers, 0, kMaxLayers);
  } else if (family.windows == Windows::kPattern) {
    pattern = fields.IntOr("sliding_window_pattern", family.default_window_pattern, 1, kMaxLayers);
  }
  for (int layer = first; layer < model.n_layers; ++layer) {
    if ((layer + 1) % pattern != 0) model.windows[layer] = window;
  }
}

// The config with the fields of its text_config (if the family has one) moved to the top level.
boost::json::object WithTextConfig(const boost::json::object& object, const Family& family) {
  boost::json::object config = object;
  const boost::json::value* text =
      family.has_text_config ? object.if_contains("text_config") : nullptr;
  if (text == nullptr || !text->is_object()) return config;
  for (const boost::json::key_value_pair& field : text->get_object()) {
    if (field.key() != "architectures") config[field.key()] = field.value();
  }
  return config;
}

absl::StatusOr<ModelDesc> Parse(const boost::json::object& object, const std::string& origin) {
  JsonFields whole(object, origin);
  const Family& family = ReadFamily(whole);
  RETURN_IF_ERROR(whole.status());
  const boost::json::object config = WithTextConfig(object, family);
  JsonFields fields(config, origin);
  ModelDesc model;
  model.architecture = family.architecture;
  model.names = family.names;
  RefuseUnsupported(fields);
  ReadActivation(fields, family, model);
  ReadDtype(fields, model);
  ReadShape(fields, family, model);
  ReadWindows(fields, family, model);
  ReadNorms(fields, family, model);
  ReadBiases(fields, family, model);
  ReadScales(fields, family, model);
  if (family.is_falcon) ReadFalcon(fields, model);
  model.experts = ReadExperts(fields, family.experts, model.n_layers, model.intermediate);
  model.tied_embeddings = fields.BoolOr("tie_word_embeddings", family.tied_by_default);
  const absl::Status rope_status = ReadRope(fields, family, origin, model);
  model.eos_tokens = fields.IntsOr("eos_token_id", 0, model.vocab - 1);
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(rope_status);
  ASSIGN_OR_RETURN(model.quantization, ReadQuantization(config, origin));
  return model;
}

}  // namespace

absl::StatusOr<ModelDesc> ModelDesc::FromJson(std::string_view text, const std::string& origin) {
  ASSIGN_OR_RETURN(const boost::json::object object, ParseJsonObject(text, origin));
  return Parse(object, origin);
}

absl::StatusOr<ModelDesc> ModelDesc::FromFolder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return absl::NotFoundError(
        absl::StrCat(folder,
                     ": no such folder; name a model folder in Hugging Face layout (config.json, "
                     "*.safetensors, tokenizer.json)"));
  }
  const std::string config_path = fs::path(folder) / "config.json";
  const absl::StatusOr<std::string> text = ReadTextFile(config_path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(text.status().message(), "; a model folder in Hugging Face layout has one"));
  }
  RETURN_IF_ERROR(text.status());
  ASSIGN_OR_RETURN(ModelDesc model, FromJson(*text, config_path));
  // A trailing slash or "." would leave no name.
  const fs::path whole = fs::weakly_canonical(folder, error);
  model.name = (whole.has_filename() ? whole : whole.parent_path()).filename();

  const std::string generation_path = fs::path(folder) / "generation_config.json";
  if (!fs::exists(generation_path, error)) return model;
  ASSIGN_OR_RETURN(const std::string generation, ReadTextFile(generation_path, kMaxConfigBytes));
  ASSIGN_OR_RETURN(const boost::json::object object, ParseJsonObject(generation, generation_path));
  JsonFields fields(object, generation_path);
  const std::vector<int32_t> eos = fields.IntsOr("eos_token_id", 0, model.vocab - 1);
  RETURN_IF_ERROR(fields.status());
  if (!eos.empty()) model.eos_tokens = eos;
  return model;
}

int ModelDesc::max_model_context() const {
  return rope.scaling == RopeDesc::Scaling::kDynamic ? static_cast<int>(kMaxPositions)
                                                     : max_positions;
}

void ModelDesc::ServeContext(int context) {
  BATON_CHECK(context >= 1 && context <= max_model_context());
  max_positions = context;
  rope.served_positions = context;
  if (window_rope) window_rope->served_positions = context;
}

std::string ModelDesc::Canonical() const {
  return absl::StrFormat(
      "%s layers %d hidden %d heads %d kv %d dim %d mlp %d vocab %d positions %d eps %.17g "
      "norms %d %d %d parallel %d %d gated %d %d scales %.17g %.17g caps %.17g %.17g "
      "biases %d %d %d qk_norm %d tied %d rotary %d rope %s windows %s rope %s%s",
      architecture, n_layers, hidden, n_heads, n_kv_heads, head_dim, intermediate, vocab,
      max_positions, norm_eps, layer_norm, norm_plus_one, output_norms, parallel_mlp, mlp_norm,
      gated_mlp, static_cast<int>(activation), embedding_scale, score_scale, score_cap, logit_cap,
      qkv_bias, o_bias, mlp_bias, qk_norm, tied_embeddings, rotary_dim, rope.Canonical(),
      absl::StrJoin(windows, ","), window_rope ? window_rope->Canonical() : "of all",
      latent.Canonical() + experts.Canonical());
}

}  // namespace baton
