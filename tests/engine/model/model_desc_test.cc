// Fields of config.json, in both spellings and of every family.
#include <catch2/catch.hpp>

#include "engine/kv/kv_layout.h"
#include "tests/engine/model/model_configs.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

const std::string kShapes = std::string(BATON_SOURCE_DIR) + "/configs/shapes/";

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
                                 "phi3_long",
                                 "deepseek_v2",
                                 "deepseek_v3",
                                 "qwen2_layers",
                                 "qwen3_layers"}) {
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
      {"deepseek-v2", 235'741'434'880},     {"deepseek-v3", 671'026'419'200},
      {"deepseek-v2-lite", 15'706'484'224}, {"falcon-7b", 6'921'720'704},
      {"falcon-40b", 41'303'293'952},       {"gemma-2b", 2'506'172'416},
      {"gemma-2-2b", 2'614'341'888},        {"gemma-3-1b", 999'885'952},
      {"gemma-3-4b", 3'880'263'168},  // with 64 tokens for images
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
  // Without architectures, model_type decides.
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

TEST_CASE("gemma 3 with images: the text part is the model of the same config without") {
  const std::string plain = ReadAll(kModels + "gemma3/config.v4.json");
  const std::string type = R"("Gemma3ForCausalLM")";
  std::string text = plain;
  text.replace(text.find(type), type.size(), R"("Gemma3Model")");
  const auto nested = [](const std::string& text_config) {
    return R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
               "eos_token_id": 7, "vision_config": {"hidden_size": 1152},
               "text_config": )" +
           text_config + "}";
  };
  const auto whole = ModelDesc::FromJson(plain, "config.json");
  const auto part = ModelDesc::FromJson(nested(text), "config.json");
  REQUIRE((whole.ok() && part.ok()));
  std::string canonical = whole->Canonical();
  canonical.replace(0, whole->architecture.size(), part->architecture);
  CHECK(part->Canonical() == canonical);
  CHECK(part->eos_tokens == whole->eos_tokens);
  CHECK(part->names->embed == "language_model.model.embed_tokens");

  const auto shape = ModelDesc::FromJson(ReadAll(kShapes + "gemma-3-4b.json"), "gemma-3-4b.json");
  REQUIRE(shape.ok());
  CHECK((shape->n_heads == 8 && shape->n_kv_heads == 4 && shape->head_dim == 256));
  CHECK((shape->max_positions == 131072 && shape->windows[0] == 1024 && shape->windows[5] == 0));
  CHECK((shape->tied_embeddings && shape->rope.factor == 8));
  const auto error = ModelDesc::FromJson(nested("3"), "config.json");
  CHECK_THAT(std::string(error.status().message()), Catch::Matchers::Contains("num_hidden_layers"));
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

TEST_CASE("what DeepSeek-V2 and V3 say about query latents, groups of experts and both mscales") {
  const absl::StatusOr<ModelDesc> v2 = ModelDesc::FromFolder(kModels + "deepseek_v2");
  REQUIRE(v2.ok());
  CHECK((v2->latent.query_rank == 64 && !v2->experts.sigmoid && !v2->experts.corrected));
  CHECK((v2->experts.groups == 4 && v2->experts.chosen_groups == 2 && v2->experts.scale == 1.5));
  CHECK((v2->experts.group_terms == 1 && !v2->experts.normalised));
  const double ln8 = std::log(8.0);
  CHECK(v2->rope.attention_factor == Approx((0.14 * ln8 + 1) / (0.0707 * ln8 + 1)).epsilon(1e-14));
  CHECK(v2->score_scale == Approx(std::pow(0.0707 * ln8 + 1, 2) / std::sqrt(48.0)).epsilon(1e-14));

  const absl::StatusOr<ModelDesc> v3 = ModelDesc::FromFolder(kModels + "deepseek_v3");
  REQUIRE(v3.ok());
  CHECK((v3->experts.sigmoid && v3->experts.corrected && v3->experts.normalised));
  CHECK((v3->experts.groups == 4 && v3->experts.chosen_groups == 2 && v3->experts.scale == 1.5));
  CHECK(v3->experts.group_terms == 2);

  // The defaults of transformers' classes for missing fields.
  std::string text = ConfigWith("architectures", "[\"DeepseekV3ForCausalLM\"]");
  text.insert(1, R"("kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
                    "v_head_dim": 32, "n_routed_experts": 32, "num_experts_per_tok": 8,
                    "moe_intermediate_size": 64, )");
  const absl::StatusOr<ModelDesc> bare = ModelDesc::FromJson(text, "config.json");
  INFO(std::string(bare.status().message()));
  REQUIRE(bare.ok());
  CHECK((bare->latent.query_rank == 1536 && bare->experts.scale == 2.5));
  CHECK((bare->experts.groups == 8 && bare->experts.chosen_groups == 4));
  CHECK((bare->experts.normalised && bare->experts.shared_intermediate == 64));
  CHECK(bare->experts.sparse == std::vector<bool>{false, false});  // three dense layers first
}

TEST_CASE("a window of Qwen2 and Qwen3 lies in the layers that layer_types names, if it is used") {
  const auto windows = [](const std::string& architecture, const std::string& more) {
    std::string text = ConfigWith("architectures", "[\"" + architecture + "\"]");
    const absl::StatusOr<ModelDesc> model = ModelDesc::FromJson(text.insert(1, more), "config");
    INFO(std::string(model.status().message()));
    REQUIRE(model.ok());
    return model->windows;
  };
  const std::string used = "\"use_sliding_window\": true, ", window = "\"sliding_window\": 24, ",
                    types = R"("layer_types": ["sliding_attention", "full_attention"], )";
  using Windows = std::vector<int>;
  for (const std::string architecture : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    CHECK(windows(architecture, used + window + types) == Windows{24, 0});
    CHECK(windows(architecture, used + window + types + "\"max_window_layers\": 0, ") ==
          Windows{24, 0});
    CHECK(windows(architecture, used + types) == Windows{4096, 0});
    CHECK(windows(architecture, used + window + "\"max_window_layers\": 1, ") == Windows{0, 24});
    CHECK(windows(architecture, used + window) == Windows{0, 0});  // the first 28 see all keys
    CHECK(windows(architecture, window + "\"max_window_layers\": 0, ") == Windows{0, 0});
    CHECK(
        windows(architecture, window + R"("layer_types": ["full_attention", "full_attention"],)") ==
        Windows{0, 0});
  }
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

}  // namespace baton
