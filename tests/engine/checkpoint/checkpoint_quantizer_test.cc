// baton quantize: its checkpoint, loaded with the same dtype, is bit by bit the model that the
// dtype makes of the original.
#include "engine/cpu/quantize/checkpoint_quantizer.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "engine/checkpoint/safetensors.h"
#include "tests/support/local_engine.h"
#include "tests/support/oracle_case.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

constexpr WeightFormat kInt8{WeightType::kInt8, 0};
WeightFormat Int4(int group) { return {WeightType::kInt4, group}; }

std::string ModelOf(const std::string& name) {
  if (name == "demo") return std::string(BATON_SOURCE_DIR) + "/models/demo";
  return std::string(BATON_TEST_DATA) + "/models/" + name;
}

absl::Status Quantize(const std::string& model, const std::string& out, WeightFormat format) {
  return QuantizeCheckpoint({model, out, format, 2}, nullptr, nullptr);
}

// Returns digests for a few tokens.
std::vector<uint64_t> DigestsOf(const std::string& model, WeightFormat format) {
  EngineOptions options;
  options.model = model;
  options.dtype = format.type == WeightType::kInt8 ? "int8" : "int4";
  if (format.group > 0) options.int4_group = format.group;
  options.threads = 2;
  absl::StatusOr<std::unique_ptr<LocalEngine>> engine = LocalEngine::Create(options, 8);
  INFO(std::string(engine.status().message()));
  REQUIRE(engine.ok());
  LocalRequest request;
  for (int32_t i = 0; i < 40; ++i) request.prompt.push_back(3 + i * 5 % 200);
  request.max_tokens = 5;
  request.ignore_eos = true;
  const absl::StatusOr<Generation> generation = (*engine)->Generate(request);
  REQUIRE(generation.ok());
  return generation->digests;
}

}  // namespace

TEST_CASE("a quantised checkpoint is the model that its dtype makes of the original") {
  const std::string name =
      GENERATE("demo", "llama_bias_fp16", "qwen3", "mixtral", "llama_linear_fp32");
  const WeightFormat format =
      GENERATE(values<WeightFormat>({kInt8, Int4(128), Int4(64), Int4(32)}));
  INFO(name << " " << format.Name());
  const TempFolder folder;
  const std::string out = folder.path() + "/out";
  const absl::Status status = Quantize(ModelOf(name), out, format);
  INFO(std::string(status.message()));
  REQUIRE(status.ok());
  CHECK(DigestsOf(out, format) == DigestsOf(ModelOf(name), format));
}

TEST_CASE("a quantised checkpoint: files, types, size") {
  const TempFolder folder;
  const std::string out = folder.path() + "/out";
  REQUIRE(Quantize(ModelOf("demo"), out, Int4(128)).ok());
  CHECK(fs::exists(out + "/tokenizer.json"));
  CHECK(fs::exists(out + "/generation_config.json"));
  CHECK(!fs::exists(out + "/model.safetensors.tmp"));
  const boost::json::value config = boost::json::parse(ReadAll(out + "/config.json"));
  const boost::json::value& quantization = config.at("quantization_config");
  CHECK(quantization.at("quant_method") == "compressed-tensors");
  CHECK(quantization.at("format") == "pack-quantized");
  // 704, the inputs of the MLP's second layer, is not a multiple of 128.
  CHECK(quantization.at("config_groups").at("group_0").at("weights").at("group_size") == 128);
  CHECK(quantization.at("config_groups").at("group_1").at("weights").at("group_size") == 64);
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(out + "/model.safetensors");
  REQUIRE(file.ok());
  const auto& tensors = file->tensors();
  CHECK(tensors.at("model.layers.0.self_attn.q_proj.weight_packed").dtype == "I32");
  CHECK(tensors.at("model.layers.0.mlp.down_proj.weight_packed").shape ==
        std::vector<int64_t>{256, 88});
  CHECK(tensors.at("model.layers.0.mlp.down_proj.weight_scale").shape ==
        std::vector<int64_t>{256, 11});
  CHECK(tensors.at("model.layers.0.input_layernorm.weight").dtype == "BF16");
  CHECK(tensors.at("model.embed_tokens.weight").dtype == "BF16");
  CHECK(!tensors.contains("model.layers.0.self_attn.q_proj.weight"));
}

TEST_CASE("quantize refuses what it cannot do, and says what to change") {
  const TempFolder folder;
  const std::string out = folder.path() + "/out";
  const auto message = [&](const std::string& model, const std::string& to) {
    return std::string(Quantize(model, to, kInt8).message());
  };
  CHECK_THAT(message(folder.path() + "/none", out), Contains("/none"));
  REQUIRE(Quantize(ModelOf("demo"), out, kInt8).ok());
  CHECK_THAT(message(ModelOf("demo"), out), Contains(out) && Contains("not empty"));
  CHECK_THAT(message(out, folder.path() + "/again"), Contains("quantised already"));
  const std::string gguf = std::string(BATON_TEST_DATA) + "/models/gguf_qwen3/model.gguf";
  CHECK_THAT(message(gguf, folder.path() + "/again"), Contains("a GGUF file is not converted"));
  CHECK(!fs::exists(folder.path() + "/again"));
}

}  // namespace baton
