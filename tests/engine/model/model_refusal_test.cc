// Configs of impossible models: errors with file, field, value and the supported values.
#include <catch2/catch.hpp>
#include <random>

#include "tests/engine/model/model_configs.h"
#include "tests/support/temp_folder.h"

namespace baton {

TEST_CASE("an unusable field of DeepSeek is an error that names it") {
  const std::string good = ReadAll(kModels + "deepseek_v2_lite/config.v4.json");
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    return ErrorOf(text.replace(text.find(from), from.size(), to));
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(error("\"q_lora_rank\": null", "\"q_lora_rank\": 0"), Contains("q_lora_rank is 0"));
  CHECK_THAT(error("\"q_lora_rank\": null", "\"rope_interleave\": false"),
             Contains("rope_interleave is false; supported: true"));
  CHECK_THAT(error("\"kv_lora_rank\": 64", "\"kv_lora_rank\": 1024"),
             Contains("kv_lora_rank is 1024"));
  CHECK_THAT(error("\"qk_rope_head_dim\": 16", "\"qk_rope_head_dim\": 15"),
             Contains("qk_rope_head_dim is 15; it must be even"));
  CHECK_THAT(error("\"topk_method\": \"greedy\"", "\"topk_method\": \"noaux_tc\""),
             Contains("topk_method is \"noaux_tc\"; supported: greedy, group_limited_greedy"));
  CHECK_THAT(error("\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 9"),
             Contains("num_experts_per_tok is 9; it must be at most n_routed_experts, 8"));
  CHECK_THAT(error("\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2"),
             Contains("moe_layer_freq is 2; supported: 1"));
}

TEST_CASE("unusable groups of DeepSeek's experts are an error that names the field") {
  const auto error = [&](const std::string& model, const std::string& from, const std::string& to) {
    std::string text = ReadAll(kModels + model + "/config.v4.json");
    REQUIRE(text.find(from) != std::string::npos);
    return ErrorOf(text.replace(text.find(from), from.size(), to));
  };
  using Catch::Matchers::Contains;
  for (const std::string model : {"deepseek_v2", "deepseek_v3"}) {
    CHECK_THAT(
        error(model, "\"n_group\": 4", "\"n_group\": 5"),
        Contains("n_group is 5; it must divide n_routed_experts, 12, into groups of at least"));
    CHECK_THAT(error(model, "\"topk_group\": 2", "\"topk_group\": 5"),
               Contains("topk_group is 5; it must be at most n_group, 4"));
    CHECK_THAT(error(model, "\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 7"),
               Contains("topk_group is 2; it must be at most n_group, 4, and give a row "
                        "num_experts_per_tok, 7, to choose from, 3 of a group"));
  }
  CHECK_THAT(
      error("deepseek_v3", "\"n_group\": 4", "\"n_group\": 12"),
      Contains("n_group is 12; it must divide n_routed_experts, 12, into groups of at least 2"));
  CHECK_THAT(error("deepseek_v3", "noaux_tc", "greedy"),
             Contains("topk_method is \"greedy\"; supported: noaux_tc"));
  CHECK_THAT(error("deepseek_v3", "\"sigmoid\"", "\"softmax\""),
             Contains("scoring_func is \"softmax\"; supported: sigmoid"));
  CHECK_THAT(error("deepseek_v2", "\"softmax\"", "\"sigmoid\""),
             Contains("scoring_func is \"sigmoid\"; supported: softmax"));
}

TEST_CASE("a window that is named but not used is an error that names the field") {
  for (const std::string model : {"qwen2_layers", "qwen3_layers"}) {
    std::string text = ReadAll(kModels + model + "/config.json");
    const std::string from = "\"use_sliding_window\": true";
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), "\"use_sliding_window\": false");
    CHECK_THAT(ErrorOf(text), Catch::Matchers::Contains("layer_types is") &&
                                  Catch::Matchers::Contains("use_sliding_window"));
  }
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
  // Every truncation of a valid file.
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
  CHECK_THAT(error(folder.path()),
             Catch::Matchers::EndsWith(
                 "config.json: no such file; a model folder in Hugging Face layout has one"));
  folder.Write("config.json", std::string(2 << 20, ' '));
  CHECK_THAT(error(folder.path()), Catch::Matchers::Contains("longer than"));
}

}  // namespace baton
