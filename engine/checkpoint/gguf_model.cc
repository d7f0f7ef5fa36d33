#include "engine/checkpoint/gguf_model.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/model/model_tensors.h"

namespace baton {
namespace {

namespace json = boost::json;

struct GgufFamily {
  std::string_view name;          // general.architecture
  std::string_view architecture;  // `architectures` of a config.json
  const TensorNames* names;
};
constexpr GgufFamily kFamilies[] = {
    {"llama", "LlamaForCausalLM", &kGgufLlamaNames},
    {"qwen2", "Qwen2ForCausalLM", &kGgufNames},
    {"qwen3", "Qwen3ForCausalLM", &kGgufNames},
};

// Keys behind the architecture and a dot, with the matching field of a config.json.
struct Renamed {
  std::string_view key, field;
};
constexpr Renamed kFields[] = {
    {"block_count", "num_hidden_layers"},
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.key_length", "head_dim"},
    {"rope.freq_base", "rope_theta"},
};
// Other keys that are read, or that do not affect the computation.
constexpr std::string_view kOtherKeys[] = {"vocab_size",
                                           "tensor_data_layout",
                                           "attention.value_length",
                                           "rope.dimension_count",
                                           "rope.scaling.type",
                                           "rope.scaling.factor",
                                           "rope.scaling.original_context_length",
                                           "rope.scaling.finetuned",
                                           "rope.scaling.attn_factor",
                                           "expert_count",
                                           "expert_used_count"};

constexpr std::string_view kRopeDivisors = "rope_freqs.weight";

std::string Shown(const GgufValue& value) {
  if (value.is_array()) return absl::StrFormat("an array of %u", value.count());
  if (const auto text = value.String()) return ShownName(*text);
  if (const auto number = value.Int()) return absl::StrCat(*number);
  if (const auto number = value.Number()) return absl::StrFormat("%g", *number);
  if (const auto flag = value.Bool()) return *flag ? "true" : "false";
  return "out of range";
}

// Converts a value to JSON. A value that no field accepts stays invalid: an array, NaN or a number
// beyond int64 becomes a text that describes it.
json::value JsonOf(const GgufValue& value) {
  if (const auto number = value.Int()) return *number;
  if (const auto number = value.Number(); number && std::isfinite(*number)) return *number;
  if (const auto flag = value.Bool()) return *flag;
  const std::string text = Shown(value);
  return json::string(text.data(), text.size());
}

class Description {
 public:
  Description(const GgufFile& file, const GgufFamily& family) : file_(file), family_(family) {}

  absl::StatusOr<ModelDesc> Describe() {
    RETURN_IF_ERROR(CheckKeys());
    Field("architectures") = json::array{Text(family_.architecture)};
    for (const Renamed& renamed : kFields) {
      const GgufValue* value = file_.Find(Key(renamed.key));
      if (value != nullptr) Field(renamed.field) = JsonOf(*value);
    }
    if (!Has("rms_norm_eps")) return Missing(Key("attention.layer_norm_rms_epsilon"));
    SetHeadDim();
    RETURN_IF_ERROR(CheckHeads());
    RETURN_IF_ERROR(ReadTensors());
    RETURN_IF_ERROR(ReadRopeScaling());
    RETURN_IF_ERROR(ReadEnds());
    ASSIGN_OR_RETURN(ModelDesc model, Parse());
    model.names = family_.names;
    RETURN_IF_ERROR(ReadRopeDivisors(model));
    RETURN_IF_ERROR(CheckTensors(model));
    model.name = std::filesystem::path(file_.path()).stem();
    return model;
  }

 private:
  static json::string Text(std::string_view text) { return json::string(text.data(), text.size()); }
  std::string Key(std::string_view key) const {
    return absl::StrCat(std::string(family_.name), ".", std::string(key));
  }
  json::value& Field(std::string_view field) {
    return config_[json::string_view(field.data(), field.size())];
  }
  bool Has(std::string_view field) const {
    return config_.contains(json::string_view(field.data(), field.size()));
  }
  absl::Status Refuse(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", what));
  }
  absl::Status RefuseKey(const std::string& key, const std::string& wanted) const {
    const GgufValue* value = file_.Find(key);
    return Refuse(absl::StrCat("metadata ", ShownName(key), " is ",
                               value == nullptr ? "missing" : Shown(*value), "; ", wanted));
  }
  absl::Status Missing(const std::string& key) const {
    return RefuseKey(key, "the file is no complete model: download or convert it again");
  }

  // Refuses unknown keys of this architecture.
  absl::Status CheckKeys() const {
    const std::string prefix = Key("");
    for (const auto& [key, value] : file_.values()) {
      if (!key.starts_with(prefix)) continue;
      const std::string_view rest = std::string_view(key).substr(prefix.size());
      const bool is_known =
          std::any_of(std::begin(kFields), std::end(kFields),
                      [&](const Renamed& renamed) { return renamed.key == rest; }) ||
          std::find(std::begin(kOtherKeys), std::end(kOtherKeys), rest) != std::end(kOtherKeys);
      if (!is_known) return RefuseKey(key, "supported: files without it");
    }
    for (const std::string_view experts : {"expert_count", "expert_used_count"}) {
      const GgufValue* value = file_.Find(Key(experts));
      if (value != nullptr && value->Int() != 0) {
        return RefuseKey(Key(experts),
                         "supported: 0 (give the model folder of a model with experts)");
      }
    }
    return absl::OkStatus();
  }

  // Sets the default head_dim, which is the same for all families.
  void SetHeadDim() {
    if (Has("head_dim")) return;
    const auto hidden = file_.Find(Key("embedding_length")),
               heads = file_.Find(Key("attention.head_count"));
    const int64_t width = hidden == nullptr ? 0 : hidden->Int().value_or(0);
    const int64_t n = heads == nullptr ? 0 : heads->Int().value_or(0);
    if (n > 0 && width % n == 0) Field("head_dim") = width / n;
  }

  // Requires one width for keys and values, all of it rotated.
  absl::Status CheckHeads() {
    const json::value* dim = config_.if_contains("head_dim");
    for (const std::string_view key : {"attention.value_length", "rope.dimension_count"}) {
      const GgufValue* value = file_.Find(Key(key));
      if (value == nullptr || dim == nullptr) continue;
      if (!dim->is_int64() || value->Int() != dim->get_int64()) {
        return RefuseKey(Key(key), "supported: the width of a head, " + json::serialize(*dim));
      }
    }
    return absl::OkStatus();
  }

  // Reads the facts that only the tensors show.
  absl::Status ReadTensors() {
    const GgufTensor* embedding = file_.FindTensor("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
      return Refuse(
          "tensor \"token_embd.weight\" is missing or no matrix; the file is no complete "
          "model: download or convert it again");
    }
    Field("vocab_size") = embedding->shape[0];
    Field("tie_word_embeddings") = file_.FindTensor("output.weight") == nullptr;
    Field("attention_bias") = file_.FindTensor("blk.0.attn_q.bias") != nullptr;
    Field("mlp_bias") = file_.FindTensor("blk.0.ffn_gate.bias") != nullptr;
    return absl::OkStatus();
  }

  absl::Status ReadRopeScaling() {
    const GgufValue* attention = file_.Find(Key("rope.scaling.attn_factor"));
    if (attention != nullptr && attention->Number() != 1.0) {
      return RefuseKey(Key("rope.scaling.attn_factor"), "supported: 1");
    }
    const GgufValue* type = file_.Find(Key("rope.scaling.type"));
    if (type == nullptr || type->String() == "none") return absl::OkStatus();
    if (type->String() != "linear" && type->String() != "yarn") {
      return RefuseKey(Key("rope.scaling.type"), "supported: none, linear, yarn");
    }
    const GgufValue* factor = file_.Find(Key("rope.scaling.factor"));
    if (factor == nullptr) return Missing(Key("rope.scaling.factor"));
    json::object scaling{{"rope_type", Text(*type->String())}, {"factor", JsonOf(*factor)}};
    const GgufValue* original = file_.Find(Key("rope.scaling.original_context_length"));
    if (original != nullptr && type->String() == "yarn") {
      scaling["original_max_position_embeddings"] = JsonOf(*original);
    }
    Field("rope_scaling") = std::move(scaling);
    return absl::OkStatus();
  }

  // Reads the end tokens: of a text, of a turn, of a message.
  absl::Status ReadEnds() {
    json::array ends;
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                            "tokenizer.ggml.eom_token_id"}) {
      const GgufValue* value = file_.Find(key);
      if (value == nullptr) continue;
      if (!value->Int()) return RefuseKey(key, "it must be an integer");
      const json::value id = *value->Int();
      if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
    }
    if (!ends.empty()) Field("eos_token_id") = std::move(ends);
    return absl::OkStatus();
  }

  // Parses the converted config; errors name the file's own keys.
  absl::StatusOr<ModelDesc> Parse() const {
    absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(json::serialize(config_), "metadata");
    if (model.ok()) return model;
    std::vector<std::pair<std::string, std::string>> names;
    for (const Renamed& renamed : kFields) names.emplace_back(renamed.field, Key(renamed.key));
    names.emplace_back("eos_token_id", "tokenizer.ggml.eos_token_id");
    return Refuse(absl::StrReplaceAll(std::string(model.status().message()), names));
  }

  // Llama 3's scaling is stored as divisors of each pair's frequency.
  absl::Status ReadRopeDivisors(ModelDesc& model) const {
    const GgufTensor* tensor = file_.FindTensor(kRopeDivisors);
    if (tensor == nullptr) return absl::OkStatus();
    const int64_t pairs = model.rotary_dim / 2;
    if (tensor->type->plain != Dtype::kFp32 || tensor->shape != std::vector<int64_t>{pairs} ||
        model.rope.scaling != RopeDesc::Scaling::kNone) {
      return Refuse(absl::StrFormat("tensor %s: supported: F32 of [%d], without another scaling",
                                    ShownName(kRopeDivisors), pairs));
    }
    model.rope.scaling = RopeDesc::Scaling::kDivided;
    model.rope.short_factors.resize(static_cast<size_t>(pairs));
    for (size_t i = 0; i < model.rope.short_factors.size(); ++i) {
      float divisor = 0;
      std::memcpy(&divisor, tensor->bytes.data() + i * sizeof(float), sizeof(float));
      if (!(divisor >= 1e-3f && divisor <= 1e6f)) {
        return Refuse(absl::StrFormat("tensor %s has %g at %d; it must be from 0.001 to 1000000",
                                      ShownName(kRopeDivisors), divisor, i));
      }
      model.rope.short_factors[i] = static_cast<double>(divisor);
    }
    return absl::OkStatus();
  }

  // Refuses tensors that the model would not use.
  absl::Status CheckTensors(const ModelDesc& model) const {
    std::set<std::string, std::less<>> used{std::string(kRopeDivisors)};
    for (TensorSpec& spec : TensorsOf(model)) used.insert(std::move(spec.stored_name));
    for (const GgufTensor& tensor : file_.tensors()) {
      if (used.contains(tensor.name)) continue;
      return Refuse(
          absl::StrFormat("tensor %s is not one of a model of architecture %s with %d "
                          "layers; supported: files without it",
                          ShownName(tensor.name), std::string(family_.name), model.n_layers));
    }
    return absl::OkStatus();
  }

  const GgufFile& file_;
  const GgufFamily& family_;
  json::object config_;
};

// Refuses files that hold no complete model.
absl::Status CheckKind(const GgufFile& file) {
  const auto refuse = [&](const char* key, const std::string& wanted) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": metadata ", ShownName(key),
                                                   " is ", Shown(*file.Find(key)), "; ", wanted));
  };
  const GgufValue* type = file.Find("general.type");
  if (type != nullptr && type->String() != "model")
    return refuse("general.type", "supported: model");
  const GgufValue* parts = file.Find("split.count");
  if (parts != nullptr && parts->Int().value_or(2) > 1) {
    return refuse("split.count", "supported: one file (llama-gguf-split --merge makes one)");
  }
  const GgufValue* version = file.Find("general.quantization_version");
  if (version != nullptr && version->Int() != 2) {
    return refuse("general.quantization_version", "supported: 2");
  }
  return absl::OkStatus();
}

}  // namespace

std::string SupportedGgufArchitectures() {
  std::string names;
  for (const GgufFamily& family : kFamilies) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(family.name));
  }
  return names;
}

absl::StatusOr<ModelDesc> DescribeGguf(const GgufFile& file) {
  RETURN_IF_ERROR(CheckKind(file));
  const GgufValue* name = file.Find("general.architecture");
  for (const GgufFamily& family : kFamilies) {
    if (name != nullptr && name->String() == family.name) {
      return Description(file, family).Describe();
    }
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: metadata \"general.architecture\" is %s; supported: %s (give the model folder of "
      "others)",
      file.path(), name == nullptr ? "missing" : Shown(*name), SupportedGgufArchitectures()));
}

absl::StatusOr<ModelDesc> DescribeGgufFile(const std::string& path) {
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  return DescribeGguf(file);
}

}  // namespace baton
