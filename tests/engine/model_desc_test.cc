// config.json in both spellings, and errors that name file, field, value and what is supported.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "engine/kv_layout.h"
#include "engine/model_desc.h"
#include "engine/temp_folder.h"

namespace baton {
namespace {

const std::string kModels = std::string(BATON_TEST_DATA) + "/models/";
const std::string kShapes = std::string(BATON_SOURCE_DIR) + "/configs/shapes/";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A good config with `field` replaced by the JSON text `value`, or removed where it is empty.
std::string ConfigWith(const std::string& field, const std::string& value) {
  const std::vector<std::pair<std::string, std::string>> good = {
      {"architectures", "[\"LlamaForCausalLM\"]"},
      {"hidden_size", "64"},
      {"num_hidden_layers", "2"},
      {"num_attention_heads", "4"},
      {"num_key_value_heads", "2"},
      {"intermediate_size", "128"},
      {"vocab_size", "100"},
      {"max_position_embeddings", "256"},
  };
  std::string text;
  bool is_replaced = false;
  const auto add = [&](const std::string& name, const std::string& json) {
    if (!json.empty()) text += (text.empty() ? "" : ", ") + ("\"" + name + "\": " + json);
  };
  for (const auto& [name, json] : good) {
    add(name, name == field ? value : json);
    is_replaced |= name == field;
  }
  if (!is_replaced) add(field, value);
  return "{" + text + "}";
}

std::string ErrorOf(const std::string& config) {
  const absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(config, "dir/config.json");
  return model.ok() ? "" : std::string(model.status().message());
}

}  // namespace

TEST_CASE("a config of transformers 5 is read") {
  const absl::StatusOr<ModelDesc> model = ModelDesc::FromFolder(kModels + "llama32/");
  REQUIRE(model.ok());
  CHECK(model->name == "llama32");
  CHECK(model->n_layers == 2);
  CHECK(model->hidden == 192);
  CHECK(model->n_heads == 4);
  CHECK(model->n_kv_heads == 2);
  CHECK(model->head_dim == 64);
  CHECK(model->intermediate == 320);
  CHECK(model->vocab == 1000);
  CHECK(model->max_positions == 2048);
  CHECK(model->norm_eps == 1e-5);
  CHECK(model->tied_embeddings);
  CHECK_FALSE((model->qkv_bias || model->o_bias || model->qk_norm));
  CHECK(model->checkpoint_dtype == Dtype::kBf16);
  CHECK(model->rope.scaling == RopeDesc::Scaling::kLlama3);
  CHECK(model->rope.theta == 500000.0);
  CHECK(model->rope.factor == 8.0);
  CHECK(model->rope.original_max_position_embeddings == 64);
  CHECK(model->eos_tokens == std::vector<int32_t>{989, 996, 997});
}

TEST_CASE("both spellings say the same") {
  for (const std::string name : {"llama2",
                                 "llama32",
                                 "llama_bias_fp16",
                                 "llama_linear_fp32",
                                 "llama_yarn",
                                 "llama_dynamic",
                                 "qwen2",
                                 "mistral_window",
                                 "qwen3",
                                 "mixtral",
                                 "qwen2_moe",
                                 "qwen3_moe",
                                 "deepseek_v2_lite",
                                 "falcon7b",
                                 "falcon40b",
                                 "gemma",
                                 "gemma2",
                                 "gemma3",
                                 "phi3_short",
                                 "phi3_long"}) {
    const std::string folder = kModels + name;
    const absl::StatusOr<ModelDesc> now =
        ModelDesc::FromJson(ReadAll(folder + "/config.json"), "config.json");
    const absl::StatusOr<ModelDesc> then =
        ModelDesc::FromJson(ReadAll(folder + "/config.v4.json"), "config.v4.json");
    REQUIRE(now.ok());
    REQUIRE(then.ok());
    CHECK(now->Canonical() == then->Canonical());
    CHECK(now->checkpoint_dtype == then->checkpoint_dtype);
    CHECK(now->eos_tokens == then->eos_tokens);
  }
}

TEST_CASE("published shapes have their published sizes") {
  const std::pair<std::string, int64_t> shapes[] = {
      {"llama-3.2-1b", 1'235'814'400},      {"llama-3.1-8b", 8'030'261'248},
      {"tinyllama-1.1b", 1'100'048'384},    {"llama-125m", 100'092'672},
      {"qwen2.5-0.5b", 494'032'768},        {"qwen3-0.6b", 596'049'920},
      {"mistral-7b", 7'241'732'096},        {"mixtral-8x7b", 46'702'792'704},
      {"qwen3-30b-a3b", 30'532'122'624},    {"qwen1.5-moe-a2.7b", 14'315'784'192},
      {"deepseek-v2-lite", 15'706'484'224}, {"falcon-7b", 6'921'720'704},
      {"falcon-40b", 41'303'293'952},       {"gemma-2b", 2'506'172'416},
      {"gemma-2-2b", 2'614'341'888},        {"gemma-3-1b", 999'885'952},
      {"phi-3-mini-4k", 3'821'079'552}};
  for (const auto& [name, parameters] : shapes) {
    INFO(name);
    const std::string path = kShapes + name + ".json";
    const absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(ReadAll(path), path);
    REQUIRE(model.ok());
    CHECK(model->n_parameters() == parameters);
  }
}

TEST_CASE("absent fields take the defaults of transformers") {
  const absl::StatusOr<ModelDesc> model =
      ModelDesc::FromJson(ConfigWith("num_key_value_heads", ""), "config.json");
  REQUIRE(model.ok());
  CHECK(model->n_kv_heads == 4);
  CHECK(model->head_dim == 16);
  CHECK(model->norm_eps == 1e-6);
  CHECK(model->rope.theta == 10000.0);
  CHECK_FALSE(model->tied_embeddings);
  CHECK(model->eos_tokens.empty());
  CHECK(model->checkpoint_dtype == Dtype::kFp32);
}

TEST_CASE("what a family fixes need not be in its config") {
  const auto read = [](const std::string& architecture, const std::string& more) {
    std::string text = ConfigWith("architectures", "[\"" + architecture + "\"]");
    text.insert(1, more);
    absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(text, "config.json");
    REQUIRE(model.ok());
    return *std::move(model);
  };
  const ModelDesc llama = read("LlamaForCausalLM", "\"attention_bias\": true, ");
  CHECK((llama.qkv_bias && llama.o_bias && !llama.qk_norm));
  const ModelDesc qwen2 = read("Qwen2ForCausalLM", "\"mlp_bias\": true, ");
  CHECK((qwen2.qkv_bias && !qwen2.o_bias && !qwen2.qk_norm && !qwen2.mlp_bias));
  CHECK(qwen2.head_dim == 16);
  const ModelDesc qwen3 = read("Qwen3ForCausalLM", "");
  CHECK((!qwen3.qkv_bias && !qwen3.o_bias && qwen3.qk_norm));
  CHECK(qwen3.head_dim == 128);
  // Without architectures the model type says it.
  std::string text = ConfigWith("architectures", "");
  text.insert(1, "\"model_type\": \"qwen2\", ");
  const absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(text, "config.json");
  REQUIRE(model.ok());
  CHECK(model->architecture == "Qwen2ForCausalLM");
}

TEST_CASE("falcon: one norm or two, one KV head or several, all biases or none") {
  const auto read = [](const std::string& more) {
    absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(
        "{\"model_type\": \"falcon\", \"hidden_size\": 96, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 6, \"vocab_size\": 100" +
            more + "}",
        "config.json");
    INFO(std::string(model.status().message()));
    REQUIRE(model.ok());
    return *std::move(model);
  };
  const ModelDesc old = read("");
  CHECK((old.parallel_mlp && old.layer_norm && !old.mlp_norm && !old.gated_mlp));
  CHECK((old.n_kv_heads == 1 && old.head_dim == 16 && old.intermediate == 384));
  CHECK((old.max_positions == 2048 && old.norm_eps == 1e-5 && old.tied_embeddings));
  CHECK((old.activation == Activation::kGelu && !old.qkv_bias));
  CHECK(read(", \"num_kv_heads\": 6").n_kv_heads == 1);
  CHECK(read(", \"multi_query\": false").n_kv_heads == 6);
  const std::string is_new = ", \"new_decoder_architecture\": true, \"num_kv_heads\": 2";
  CHECK((read(is_new).n_kv_heads == 2 && read(is_new).mlp_norm));
  CHECK_FALSE(read(is_new + ", \"num_ln_in_parallel_attn\": 1").mlp_norm);
  const ModelDesc biased = read(", \"bias\": true");
  CHECK((biased.qkv_bias && biased.o_bias && biased.mlp_bias));
}

TEST_CASE("gemma: scales, caps and norms that its configs leave out") {
  const auto read = [](const std::string& architecture, const std::string& more) {
    std::string text = ConfigWith("architectures", "[\"" + architecture + "\"]");
    text.insert(1, more);
    absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(text, "config.json");
    INFO(std::string(model.status().message()));
    REQUIRE(model.ok());
    return *std::move(model);
  };
  const ModelDesc gemma = read("GemmaForCausalLM", "\"hidden_act\": \"gelu\", ");
  CHECK((gemma.norm_plus_one && gemma.tied_embeddings && !gemma.output_norms));
  CHECK((gemma.activation == Activation::kGeluTanh && gemma.embedding_scale == 8));
  CHECK((gemma.head_dim == 256 && gemma.score_scale == 1.0 / 16));
  CHECK((gemma.score_cap == 0 && gemma.logit_cap == 0));
  const ModelDesc gemma2 = read("Gemma2ForCausalLM", "\"query_pre_attn_scalar\": 144, ");
  CHECK((gemma2.output_norms && gemma2.score_scale == 1.0 / 12));
  CHECK((gemma2.score_cap == 50 && gemma2.logit_cap == 30));
  CHECK(gemma2.windows == std::vector<int>{4096, 0});
  const ModelDesc uncapped = read("Gemma2ForCausalLM", "\"final_logit_softcapping\": null, ");
  CHECK((uncapped.score_cap == 50 && uncapped.logit_cap == 0));
}

TEST_CASE("gemma 3: layers with a window have a rope of their own, in both spellings") {
  const auto read = [](const std::string& field, const std::string& value) {
    std::string text = ConfigWith(field, value);
    const std::string llama = "LlamaForCausalLM";
    text.replace(text.find(llama), llama.size(), "Gemma3ForCausalLM");
    absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(text, "config.json");
    INFO(std::string(model.status().message()));
    REQUIRE(model.ok());
    REQUIRE(model->window_rope);
    return *std::move(model);
  };
  const ModelDesc plain = read("rope_local_base_freq", "5000");
  CHECK((plain.rope.theta == 1e6 && plain.window_rope->theta == 5000));
  CHECK(plain.windows == std::vector<int>{4096, 4096});  // the sixth layer would see all
  CHECK((plain.qk_norm && plain.output_norms && plain.score_cap == 0 && plain.logit_cap == 0));
  CHECK(read("sliding_window_pattern", "2").windows == std::vector<int>{4096, 0});
  const ModelDesc scaled = read("rope_scaling", "{\"type\": \"linear\", \"factor\": 8}");
  CHECK((scaled.rope.factor == 8 && scaled.window_rope->scaling == RopeDesc::Scaling::kNone));
  const ModelDesc named =
      read("rope_parameters",
           "{\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 4, \"rope_theta\": 7e5},"
           " \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 3e4}}");
  CHECK((named.rope.theta == 7e5 && named.rope.factor == 4 && named.window_rope->theta == 3e4));
}

TEST_CASE("longrope: factors by pair, the range by the most tokens") {
  const auto text = [](const std::string& more) {
    std::string config = ConfigWith(
        "rope_scaling",
        "{\"type\": \"longrope\", \"short_factor\": [1, 2, 3, 4], \"long_factor\": [5, 6, 7, 8]" +
            more + "}");
    const std::string llama = "LlamaForCausalLM";
    config.replace(config.find(llama), llama.size(), "Phi3ForCausalLM");
    config.insert(1, "\"partial_rotary_factor\": 0.5, ");
    return config;
  };
  const absl::StatusOr<ModelDesc> model =
      ModelDesc::FromJson(text(", \"original_max_position_embeddings\": 64"), "config.json");
  INFO(std::string(model.status().message()));
  REQUIRE(model.ok());
  CHECK(model->rotary_dim == 8);
  CHECK(model->windows == std::vector<int>{0, 0});
  CHECK(model->rope.attention_factor == Approx(std::sqrt(1 + std::log(4.0) / std::log(64.0))));
  CHECK(model->rope.RangeOf(64) == RopeRange::kShort);
  CHECK(model->rope.RangeOf(65) == RopeRange::kLong);
  CHECK(RopeDesc().RangeOf(1 << 20) == RopeRange::kShort);
  const std::vector<double> plain = RopeFrequencies(RopeDesc(), 8);
  const std::vector<double> near = RopeFrequencies(model->rope, 8);
  const std::vector<double> far = RopeFrequencies(model->rope, 8, RopeRange::kLong);
  for (int i = 0; i < 4; ++i) {
    CHECK(near[i] == plain[i] / (1 + i));
    CHECK(far[i] == plain[i] / (5 + i));
  }
  using Catch::Matchers::Contains;
  CHECK_THAT(ErrorOf(text("")), Contains("original_max_position_embeddings is missing"));
  std::string short_list = text(", \"original_max_position_embeddings\": 64");
  short_list.replace(short_list.find("[5, 6, 7, 8]"), 12, "[5, 6, 7]");
  CHECK_THAT(ErrorOf(short_list),
             Contains("long_factor is [5,6,7]; it must be a list of 4 numbers"));
  std::string odd = text(", \"original_max_position_embeddings\": 64");
  odd.replace(odd.find("0.5"), 3, "0.2");
  CHECK_THAT(ErrorOf(odd), Contains("it must leave an even part of head_dim, 16"));
}

TEST_CASE("which layers have a window") {
  using Windows = std::vector<int>;
  const auto windows = [](const std::string& architecture, const std::string& more) {
    std::string text = ConfigWith("architectures", "[\"" + architecture + "\"]");
    text.insert(1, more);
    const absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(text, "config.json");
    INFO(std::string(model.status().message()));
    REQUIRE(model.ok());
    return model->windows;
  };
  const std::string window = "\"sliding_window\": 48, ";
  const std::string types = "\"layer_types\": [\"sliding_attention\", \"full_attention\"], ";
  CHECK(windows("LlamaForCausalLM", window) == Windows{0, 0});
  CHECK(windows("MistralForCausalLM", window) == Windows{48, 48});
  CHECK(windows("MistralForCausalLM", "") == Windows{4096, 4096});
  CHECK(windows("MistralForCausalLM", "\"sliding_window\": null, ") == Windows{0, 0});
  const std::string experts =
      "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"num_experts\": 8, "
      "\"moe_intermediate_size\": 48, \"shared_expert_intermediate_size\": 96, ";
  CHECK(windows("MixtralForCausalLM", experts) == Windows{0, 0});
  CHECK(windows("MixtralForCausalLM", experts + window) == Windows{48, 48});
  CHECK(windows("Qwen2MoeForCausalLM", experts + window) == Windows{0, 0});
  CHECK(windows("Qwen3MoeForCausalLM", experts + window) == Windows{0, 0});
  const std::string use = "\"use_sliding_window\": true, ", first = "\"max_window_layers\": 1, ";
  CHECK(windows("Qwen2ForCausalLM", window) == Windows{0, 0});
  CHECK(windows("Qwen2ForCausalLM", window + use) == Windows{0, 0});  // layers 28 and up
  CHECK(windows("Qwen2ForCausalLM", window + use + first) == Windows{0, 48});
  CHECK(windows("Qwen3ForCausalLM", window + use + types) == Windows{48, 0});
  CHECK(windows("Qwen2MoeForCausalLM", experts + window + use + types) == Windows{48, 0});
  CHECK(windows("Qwen3MoeForCausalLM", experts + window + use) == Windows{48, 48});
}

TEST_CASE("what a config says about experts") {
  const auto read = [](const std::string& architecture, const std::string& more) {
    std::string text = ConfigWith("num_hidden_layers", "6");
    const std::string llama = "LlamaForCausalLM";
    text.replace(text.find(llama), llama.size(), architecture);
    text.insert(1, more + ", \"num_experts_per_tok\": 2, ");
    absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(text, "config.json");
    INFO(std::string(model.status().message()));
    REQUIRE(model.ok());
    return model->experts;
  };
  const ExpertsDesc mixtral = read("MixtralForCausalLM", "\"num_local_experts\": 8");
  CHECK((mixtral.n == 8 && mixtral.per_token == 2 && mixtral.intermediate == 128));
  CHECK((mixtral.normalised && mixtral.shared_intermediate == 0 && mixtral.scale == 1));
  CHECK(mixtral.sparse == std::vector<bool>(6, true));

  const std::string qwen = "\"num_experts\": 8, \"moe_intermediate_size\": 48";
  const std::string shared = qwen + ", \"shared_expert_intermediate_size\": 96";
  const ExpertsDesc qwen2 =
      read("Qwen2MoeForCausalLM", shared + ", \"decoder_sparse_step\": 2, \"sliding_window\": 0");
  CHECK((qwen2.n == 8 && qwen2.intermediate == 48 && qwen2.shared_intermediate == 96));
  CHECK((!qwen2.normalised && qwen2.shared_gate));
  CHECK(qwen2.sparse == std::vector<bool>{false, true, false, true, false, true});
  const ExpertsDesc qwen3 = read(
      "Qwen3MoeForCausalLM", qwen + ", \"norm_topk_prob\": true, \"mlp_only_layers\": [0, 4, 99]");
  CHECK((qwen3.normalised && !qwen3.shared_gate && qwen3.shared_intermediate == 0));
  CHECK(qwen3.sparse == std::vector<bool>{false, true, true, true, false, true});
}

TEST_CASE("what a config says about latent attention") {
  const absl::StatusOr<ModelDesc> model = ModelDesc::FromFolder(kModels + "deepseek_v2_lite");
  REQUIRE(model.ok());
  const LatentDesc& latent = model->latent;
  CHECK((latent.rank == 64 && latent.plain_dim == 32 && latent.rotated_dim == 16));
  CHECK((latent.query_dim() == 48 && latent.key_dim() == 80 && latent.value_dim == 32));
  CHECK((model->n_kv_heads == 1 && model->head_dim == 16));
  CHECK((model->q_width() == 4 * 48 && model->attended_width() == 4 * 32));
  const double yarn = 0.1 * 0.707 * std::log(8.0) + 1;
  CHECK(model->score_scale == Approx(yarn * yarn / std::sqrt(48.0)).epsilon(1e-14));
  CHECK(model->rope.attention_factor == 1);  // mscale is mscale_all_dim
  const ExpertsDesc& experts = model->experts;
  CHECK((experts.n == 8 && experts.per_token == 3 && experts.intermediate == 48));
  CHECK((experts.shared_intermediate == 96 && !experts.shared_gate && !experts.normalised));
  CHECK(experts.sparse == std::vector<bool>{false, true, true});

  const KvLayout layout = KvLayout::For(*model, KvType::kBf16, 16);
  CHECK(layout.shape(0) == KvShape{1, 80, 64, true});
  CHECK(layout.planes[0].bytes == 16 * 96 * 2);  // keys padded to 96, no values
}

TEST_CASE("how many shared experts DeepSeek has") {
  const std::string good = ReadAll(kModels + "deepseek_v2_lite/config.v4.json");
  const auto width = [&](const std::string& field) {
    std::string text = good;
    const std::string from = "\"n_shared_experts\": 2,";
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), field);
    const absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(text, "config.json");
    REQUIRE(model.ok());
    return model->experts.shared_intermediate;
  };
  CHECK(width("\"n_shared_experts\": 3,") == 3 * 48);
  CHECK(width("\"n_shared_experts\": null,") == 0);
  CHECK(width("") == 2 * 48);
}

TEST_CASE("an unusable field of DeepSeek is an error that names it") {
  const std::string good = ReadAll(kModels + "deepseek_v2_lite/config.v4.json");
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    return ErrorOf(text.replace(text.find(from), from.size(), to));
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(error("\"q_lora_rank\": null", "\"q_lora_rank\": 1536"),
             Contains("q_lora_rank is 1536; supported: null"));
  CHECK_THAT(error("\"kv_lora_rank\": 64", "\"kv_lora_rank\": 1024"),
             Contains("kv_lora_rank is 1024"));
  CHECK_THAT(error("\"qk_rope_head_dim\": 16", "\"qk_rope_head_dim\": 15"),
             Contains("qk_rope_head_dim is 15; it must be even"));
  CHECK_THAT(error("\"topk_method\": \"greedy\"", "\"topk_method\": \"group_limited_greedy\""),
             Contains("topk_method is \"group_limited_greedy\"; supported: greedy"));
  CHECK_THAT(error("\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 9"),
             Contains("num_experts_per_tok is 9; it must be at most n_routed_experts, 8"));
  CHECK_THAT(error("\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2"),
             Contains("moe_layer_freq is 2; supported: 1"));
}

TEST_CASE("an unusable field of experts is an error that names it") {
  const auto error = [](const std::string& architecture, const std::string& more) {
    std::string text = ConfigWith("architectures", "[\"" + architecture + "\"]");
    return ErrorOf(text.insert(1, more + ", "));
  };
  const std::string mixtral = "MixtralForCausalLM", qwen2 = "Qwen2MoeForCausalLM";
  const std::string four =
      "\"num_experts\": 4, \"moe_intermediate_size\": 48, "
      "\"shared_expert_intermediate_size\": 96, ";
  const std::string two = "\"num_experts_per_tok\": 2";
  CHECK_THAT(error(mixtral, two), Catch::Matchers::Contains("num_local_experts is missing"));
  CHECK_THAT(error(mixtral, "\"num_local_experts\": 4, \"num_experts_per_tok\": 5"),
             Catch::Matchers::Contains("num_experts_per_tok is 5; it must be at most "
                                       "num_local_experts, 4"));
  CHECK_THAT(error(mixtral, "\"num_local_experts\": 4, \"num_experts_per_tok\": 0"),
             Catch::Matchers::Contains("num_experts_per_tok is 0"));
  CHECK_THAT(error(qwen2, "\"num_experts\": 4, " + two),
             Catch::Matchers::Contains("moe_intermediate_size is missing"));
  CHECK_THAT(error(qwen2, four + two + ", \"decoder_sparse_step\": 0"),
             Catch::Matchers::Contains("decoder_sparse_step is 0"));
  CHECK_THAT(error(qwen2, four + two + ", \"use_sliding_window\": true"),
             Catch::Matchers::Contains("use_sliding_window is true; supported: false, or true"));
  CHECK(error(qwen2, four + two).empty());
}

TEST_CASE("generation_config.json decides the stop tokens") {
  const TempFolder folder;
  folder.Write("config.json", ConfigWith("eos_token_id", "5"));
  CHECK(ModelDesc::FromFolder(folder.path())->eos_tokens == std::vector<int32_t>{5});
  folder.Write("generation_config.json", "{\"eos_token_id\": [7, 8]}");
  CHECK(ModelDesc::FromFolder(folder.path())->eos_tokens == std::vector<int32_t>{7, 8});
  folder.Write("generation_config.json", "{\"eos_token_id\": 100}");
  const absl::Status status = ModelDesc::FromFolder(folder.path()).status();
  CHECK(status.message().find("generation_config.json: eos_token_id is 100; it must be an integer "
                              "from 0 to 99") != std::string::npos);
}

TEST_CASE("an unusable config is an error that names file, field and value") {
  struct Example {
    std::string field, value, error;
  };
  const Example examples[] = {
      {"architectures", "[\"BloomForCausalLM\"]", "supported: one of LlamaForCausalLM, Mistral"},
      {"architectures", "[]", "supported: one of LlamaForCausalLM"},
      {"architectures", "[5]", "architectures is [5]; supported: one of LlamaForCausalLM"},
      {"layer_types", "[\"full_attention\", \"sliding_attention\"]",
       "supported: full_attention, one"},
      {"layer_types", "[\"full_attention\"]", "supported: full_attention, one of 2 layers each"},
      {"architectures", "", "architectures is missing"},
      {"hidden_size", "", "hidden_size is missing; it must be an integer"},
      {"hidden_size", "0", "hidden_size is 0; it must be an integer from 1"},
      {"hidden_size", "1e30", "hidden_size is 1E30"},
      {"hidden_size", "-64", "hidden_size is -64"},
      {"hidden_size", "\"64\"", "hidden_size is \"64\""},
      {"hidden_size", "65", "hidden_size is 65; without head_dim"},
      {"num_hidden_layers", "1000000000000", "num_hidden_layers is 1000000000000"},
      {"num_hidden_layers", "18446744073709551615", "num_hidden_layers is 18446744073709551615"},
      {"num_attention_heads", "0", "num_attention_heads is 0"},
      {"num_key_value_heads", "3", "num_key_value_heads is 3; it must divide"},
      {"head_dim", "17", "head_dim is 17; it must be even"},
      {"head_dim", "100000", "head_dim is 100000"},
      {"vocab_size", "[1]", "vocab_size is [1]"},
      {"vocab_size", "2.5", "vocab_size is 2.5E0"},
      {"max_position_embeddings", "9999999999", "max_position_embeddings is 9999999999"},
      {"rms_norm_eps", "-1", "rms_norm_eps is -1"},
      {"rms_norm_eps", "true", "rms_norm_eps is true"},
      {"hidden_act", "\"gelu\"", "hidden_act is \"gelu\"; supported: silu"},
      {"attention_bias", "1", "attention_bias is 1; it must be true or false"},
      {"torch_dtype", "\"float64\"", "torch_dtype is \"float64\"; supported: bfloat16"},
      {"dtype", "\"int8\"", "dtype is \"int8\""},
      {"quantization_config", "{\"bits\": 4}", "quantization_config: quant_method is missing"},
      {"partial_rotary_factor", "0.5", "partial_rotary_factor is 5E-1; supported: 1"},
      {"layer_types", "[\"sliding_attention\"]", "supported: full_attention, one of 2 layers each"},
      {"rope_theta", "0", "rope_theta is 0"},
      {"rope_scaling", "7", "rope_scaling is 7; it must be an object"},
      {"rope_scaling", "{\"type\": \"longrope\", \"factor\": 2}",
       "rope_scaling: short_factor is missing; it must be a list of 8 numbers"},
      {"rope_parameters", "{\"rope_type\": \"mrope\"}", "rope_parameters: rope_type is \"mrope\""},
      {"rope_scaling", "{\"rope_type\": \"llama3\"}", "rope_scaling: factor is missing"},
      {"rope_scaling", "{\"type\": \"linear\"}", "rope_scaling: factor is missing"},
      {"rope_scaling", "{\"type\": \"yarn\", \"factor\": 0.5}", "factor is 5E-1"},
      {"rope_scaling", "{\"type\": \"yarn\", \"factor\": 2, \"beta_fast\": 0}", "beta_fast is 0"},
      {"rope_parameters", "{\"sliding_attention\": {\"rope_theta\": 1e4}}",
       "rope_parameters: sliding_attention is {\"rope_theta\":1E4}; supported: one rope for all"},
      {"rope_parameters", "{\"partial_rotary_factor\": 0.5}", "partial_rotary_factor is 5E-1"},
      {"rope_scaling",
       "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4,"
       " \"original_max_position_embeddings\": 8192}",
       "high_freq_factor is 4; it must be above low_freq_factor"},
      {"eos_token_id", "100", "eos_token_id is 100; it must be an integer from 0 to 99"},
      {"eos_token_id", "[1, \"x\"]", "eos_token_id is [1,\"x\"]"},
  };
  for (const Example& example : examples) {
    INFO(example.field << ": " << example.value);
    const std::string error = ErrorOf(ConfigWith(example.field, example.value));
    CHECK(error.find("dir/config.json: ") == 0);
    CHECK_THAT(error, Catch::Matchers::Contains(example.error));
  }
  CHECK(ErrorOf(ConfigWith("rope_scaling", "null")).empty());
}

TEST_CASE("what a family cannot do is an error that names the field") {
  const auto error = [](const std::string& architecture, const std::string& more) {
    std::string text = ConfigWith("architectures", "[\"" + architecture + "\"]");
    text.insert(1, more);
    return ErrorOf(text);
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(error("FalconForCausalLM", "\"alibi\": true, "),
             Contains("alibi is true; supported: false"));
  CHECK_THAT(error("FalconForCausalLM", "\"parallel_attn\": false, "),
             Contains("parallel_attn is false; supported: true"));
  CHECK_THAT(error("FalconForCausalLM", "\"activation\": \"relu\", "),
             Contains("activation is \"relu\"; supported: gelu"));
  CHECK_THAT(
      error("FalconForCausalLM", "\"new_decoder_architecture\": true, \"num_kv_heads\": 3, "),
      Contains("num_kv_heads is 3; it must divide num_attention_heads, 4"));
  CHECK_THAT(error("GemmaForCausalLM", "\"hidden_act\": \"silu\", "),
             Contains("hidden_act is \"silu\"; supported: gelu_pytorch_tanh"));
  CHECK_THAT(error("Gemma2ForCausalLM", "\"attn_logit_softcapping\": 0, "),
             Contains("attn_logit_softcapping is 0; it must be a number"));
  CHECK_THAT(error("Gemma2ForCausalLM", "\"use_bidirectional_attention\": true, "),
             Contains("use_bidirectional_attention is true; supported: false"));
}

TEST_CASE("what is no JSON object is an error") {
  for (const std::string text : {"", "{", "[]", "null", "{\"a\": }", "{} x", "\xff\xfe{}"}) {
    CHECK(ErrorOf(text).find("dir/config.json: ") == 0);
  }
  CHECK_FALSE(ErrorOf(std::string(100000, '[')).empty());
  // Every truncation of a good file.
  const std::string good = ReadAll(kModels + "llama32/config.json");
  const size_t end = good.rfind('}');
  for (size_t n = 0; n <= end; ++n) CHECK_FALSE(ErrorOf(good.substr(0, n)).empty());
}

TEST_CASE("random damage of a config is an error or a model within the limits") {
  const std::string name = GENERATE("llama32", "qwen2_moe", "deepseek_v2_lite");
  const std::string good = ReadAll(kModels + name + "/config.v4.json");
  std::mt19937 random(5);
  int n_errors = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int i = 0; i < 1 + round % 3; ++i) {
      // Digits and punctuation make more files that parse than random bytes do.
      constexpr std::string_view kBytes = "0123456789-+.eE,:{}[]\"ntf \\";
      text[random() % text.size()] = kBytes[random() % kBytes.size()];
    }
    const absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(text, "config.json");
    n_errors += !model.ok();
    if (!model.ok()) continue;
    CHECK(model->n_heads % model->n_kv_heads == 0);
    CHECK(model->head_dim % 2 == 0);
    CHECK((model->vocab > 0 && model->hidden > 0 && model->n_parameters() > 0));
    for (const int32_t token : model->eos_tokens) CHECK((token >= 0 && token < model->vocab));
    CHECK((model->experts.n == 0 || model->experts.per_token <= model->experts.n));
    CHECK(model->latent.rotated_dim % 2 == 0);
  }
  CHECK(n_errors > 500);
}

TEST_CASE("a folder that is none is an error that says so") {
  const TempFolder folder;
  const auto error = [](const std::string& path) {
    return std::string(ModelDesc::FromFolder(path).status().message());
  };
  CHECK_THAT(error(folder.file("absent")), Catch::Matchers::Contains("no such folder"));
  CHECK_THAT(error(folder.path()), Catch::Matchers::Contains("config.json: no such file"));
  folder.Write("config.json", std::string(2 << 20, ' '));
  CHECK_THAT(error(folder.path()), Catch::Matchers::Contains("longer than"));
}

TEST_CASE("rope frequencies follow the llama3 rule") {
  RopeDesc rope;
  rope.theta = 500000;
  const std::vector<double> plain = RopeFrequencies(rope, 64);
  CHECK(plain[0] == 1.0);
  CHECK(plain[16] == Approx(std::pow(500000.0, -0.5)));
  rope.scaling = RopeDesc::Scaling::kLlama3;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_position_embeddings = 8192;
  const std::vector<double> scaled = RopeFrequencies(rope, 64);
  const double pi = std::acos(-1.0);
  for (int i = 0; i < 32; ++i) {
    const double wavelength = 2 * pi / plain[i];
    double expected = plain[i];
    if (wavelength > 8192.0) {
      expected = plain[i] / 8;
    } else if (wavelength > 8192.0 / 4) {
      const double smooth = (8192.0 / wavelength - 1) / (4 - 1);
      expected = (1 - smooth) * plain[i] / 8 + smooth * plain[i];
    }
    CHECK(scaled[i] == Approx(expected).epsilon(1e-14));
  }
}

TEST_CASE("linear rope divides every frequency") {
  RopeDesc rope;
  const std::vector<double> plain = RopeFrequencies(rope, 64);
  rope.scaling = RopeDesc::Scaling::kLinear;
  rope.factor = 4;
  const std::vector<double> scaled = RopeFrequencies(rope, 64);
  for (int i = 0; i < 32; ++i) CHECK(scaled[i] == plain[i] / 4);
}

TEST_CASE("yarn keeps fast pairs, stretches slow ones and blends between") {
  RopeDesc rope;
  const std::vector<double> plain = RopeFrequencies(rope, 128);
  rope.scaling = RopeDesc::Scaling::kYarn;
  rope.factor = 8;
  rope.original_max_position_embeddings = 4096;
  const std::vector<double> scaled = RopeFrequencies(rope, 128);
  // 32 turns in 4,096 positions are made between pairs 20 and 21, one turn between 45 and 46.
  for (int i = 0; i <= 20; ++i) CHECK(scaled[i] == plain[i]);
  for (int i = 21; i < 46; ++i) {
    const double stretched = (i - 20) / 26.0;
    CHECK(scaled[i] == Approx(plain[i] * (1 - stretched + stretched / 8)).epsilon(1e-14));
  }
  for (int i = 46; i < 64; ++i) CHECK(scaled[i] == plain[i] / 8);

  CHECK(YarnAttentionFactor(8, 0, 0) == Approx(0.1 * std::log(8.0) + 1));
  CHECK(YarnAttentionFactor(8, 0.5, 0) == YarnAttentionFactor(8, 0, 0));  // both or none
  CHECK(YarnAttentionFactor(8, 0.5, 2) ==
        Approx((0.05 * std::log(8.0) + 1) / (0.2 * std::log(8.0) + 1)));
  CHECK(YarnAttentionFactor(1, 0, 0) == 1.0);
}

TEST_CASE("dynamic rope has the theta of the served context") {
  RopeDesc rope;
  rope.original_max_position_embeddings = 128;
  const std::vector<double> plain = RopeFrequencies(rope, 64);
  rope.scaling = RopeDesc::Scaling::kDynamic;
  rope.factor = 2;
  for (const double served : {0.0, 100.0, 128.0}) {
    rope.served_positions = served;
    CHECK(RopeFrequencies(rope, 64) == plain);
  }
  rope.served_positions = 512;
  RopeDesc slower;
  slower.theta = 10000 * std::pow(7.0, 64.0 / 62.0);  // 2 * 512 / 128 - (2 - 1) = 7
  CHECK(RopeFrequencies(rope, 64) == RopeFrequencies(slower, 64));
}

TEST_CASE("what rope scaling makes of the context") {
  const auto context = [](const std::string& scaling) {
    const absl::StatusOr<ModelDesc> model =
        ModelDesc::FromJson(ConfigWith("rope_scaling", scaling), "config.json");
    REQUIRE(model.ok());
    return std::pair(model->max_positions, model->most_context());
  };
  CHECK(context("null") == std::pair(256, 256));
  CHECK(context("{\"type\": \"linear\", \"factor\": 2}") == std::pair(256, 256));
  CHECK(context("{\"type\": \"yarn\", \"factor\": 4}") == std::pair(1024, 1024));
  CHECK(context("{\"type\": \"yarn\", \"factor\": 4,"
                " \"original_max_position_embeddings\": 32}") == std::pair(256, 256));
  CHECK(context("{\"type\": \"dynamic\", \"factor\": 4}") == std::pair(256, 1 << 21));
}

TEST_CASE("the rope table is the rounded cosine and sine of position times frequency") {
  ModelDesc model = *ModelDesc::FromFolder(kModels + "llama32");
  model.max_positions = 100;
  const RopeTable table = RopeTable::For(model.rope, model.head_dim, model.max_positions);
  const std::vector<double> frequencies = RopeFrequencies(model.rope, model.head_dim);
  REQUIRE(table.cos.size() == 100 * 32);
  for (int position : {0, 1, 63, 99}) {
    for (int i = 0; i < 32; ++i) {
      CHECK(table.cos[position * 32 + i] ==
            static_cast<float>(std::cos(position * frequencies[i])));
      CHECK(table.sin[position * 32 + i] ==
            static_cast<float>(std::sin(position * frequencies[i])));
    }
  }
}

}  // namespace baton
