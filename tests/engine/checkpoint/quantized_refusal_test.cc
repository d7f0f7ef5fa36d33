// Invalid quantised checkpoints: errors with the name of the tensor or field, and never a read
// outside the files.
#include <catch2/catch.hpp>
#include <random>

#include "engine/checkpoint/stored_tensor.h"
#include "engine/load_backend.h"
#include "engine/step/backend.h"
#include "tests/engine/checkpoint/quantized_models.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;

const std::string kModule = "model.layers.1.mlp.down_proj";

std::string LoadError(const std::string& config, const FileTensors& tensors) {
  const TempFolder folder;
  WriteCheckpoint(folder, config, tensors);
  EngineOptions options;
  options.model = folder.path();
  const auto backend = LoadBackend(options);
  return backend.ok() ? "" : std::string(backend.status().message());
}

// Returns the error for a config.json alone.
std::string ConfigError(const std::string& quantization) {
  return std::string(
      ModelDesc::FromJson(ConfigWith(quantization), "config.json").status().message());
}

const FileTensors& Quantised(const std::string& format) {
  static std::map<std::string, FileTensors> made;
  FileTensors& tensors = made[format];
  if (tensors.empty()) tensors = MakeTwins(FormatCalled(format), PlainModel()).quantised;
  return tensors;
}

// Returns the error after `change` of the checkpoint of `format`.
std::string ErrorAfter(const std::string& format,
                       const std::function<void(FileTensors& tensors)>& change) {
  FileTensors tensors = Quantised(format);
  change(tensors);
  return LoadError(ConfigWith(FormatCalled(format).config), tensors);
}

// A format, a tensor of a module that is removed, changed in type or cut by a row, and the error of
// each change.
struct Part {
  std::string format, suffix;
};

}  // namespace

TEST_CASE("a missing, misshapen or mistyped part is an error that names it") {
  const Part part = GENERATE(
      Part{"gptq", "qweight"}, Part{"gptq", "qzeros"}, Part{"gptq", "scales"},
      Part{"gptq in activation order", "g_idx"}, Part{"awq", "qweight"}, Part{"awq", "qzeros"},
      Part{"awq", "scales"}, Part{"packed int4 with zero points", "weight_packed"},
      Part{"packed int4 with zero points", "weight_scale"},
      Part{"packed int4 with zero points", "weight_zero_point"},
      Part{"packed int4 in activation order", "weight_g_idx"}, Part{"int8 per channel", "weight"},
      Part{"int8 per channel", "weight_scale"}, Part{"fp8 in blocks", "weight"},
      Part{"fp8 in blocks", "weight_scale_inv"}, Part{"fp8, one scale", "weight_scale"});
  const std::string name = kModule + "." + part.suffix;
  INFO(part.format << " " << part.suffix);
  const std::string missing =
      ErrorAfter(part.format, [&](FileTensors& tensors) { tensors.erase(name); });
  CHECK_THAT(missing, Contains(kModule) && Contains("missing"));
  const std::string misshapen = ErrorAfter(part.format, [&](FileTensors& tensors) {
    FileTensor& tensor = tensors.at(name);
    if (tensor.shape == std::vector<int64_t>{1}) tensor.shape = {1, 1, 1};
    tensor.shape.push_back(1);
  });
  CHECK_THAT(misshapen, Contains("tensor \"" + name + "\" has shape [") && Contains("asks for"));
  const std::string mistyped = ErrorAfter(part.format, [&](FileTensors& tensors) {
    FileTensor& tensor = tensors.at(name);
    const bool is_wide = tensor.dtype == "I32" || tensor.dtype == "F32";
    tensor.dtype = is_wide ? "U32" : tensor.dtype == "I8" || tensor.dtype[1] == '8' ? "U8" : "U16";
  });
  CHECK_THAT(mistyped, Contains("tensor \"" + name + "\" has dtype U"));
}

TEST_CASE("a shape that the config does not ask for is an error") {
  CHECK_THAT(
      ErrorAfter("packed int4",
                 [](FileTensors& tensors) {
                   const std::vector<int64_t> shape{192, 319};
                   tensors.at(kModule + ".weight_shape").bytes = BytesOf(shape);
                 }),
      Contains(kModule + ".weight_shape\" says [192, 319]; config.json asks for [192, 320]"));
}

TEST_CASE("a group index out of range is an error that names input and value") {
  for (const int32_t bad : {-1, 10, 1 << 30, -(1 << 30)}) {
    const std::string error = ErrorAfter("gptq in activation order", [&](FileTensors& tensors) {
      std::memcpy(tensors.at(kModule + ".g_idx").bytes.data() + 77 * 4, &bad, 4);
    });
    CHECK_THAT(error, Contains(absl::StrFormat(
                          "%s.g_idx\" has %d for input 77; there are 10 groups", kModule, bad)));
  }
  CHECK_THAT(ErrorAfter("packed int4 in activation order",
                        [](FileTensors& tensors) {
                          const int32_t bad = 10;
                          std::memcpy(tensors.at(kModule + ".weight_g_idx").bytes.data(), &bad, 4);
                        }),
             Contains("weight_g_idx\" has 10 for input 0"));
}

TEST_CASE("bad numbers in scales and codes are errors that name tensor and row") {
  const auto with_scale = [](const std::string& format, const std::string& suffix, size_t index,
                             auto value) {
    return ErrorAfter(format, [&](FileTensors& tensors) {
      std::string& bytes = tensors.at(kModule + "." + suffix).bytes;
      std::memcpy(bytes.data() + index * sizeof(value), &value, sizeof(value));
    });
  };
  CHECK_THAT(with_scale("gptq", "scales", 192 * 3 + 5, uint16_t{0x7e00}),
             Contains(kModule + ".scales\" has a value in row 3, column 5 that is NaN"));
  CHECK_THAT(with_scale("int8 per channel", "weight_scale", 9, uint16_t{0x7f80}),
             Contains(kModule + ".weight_scale\" has a value in row 9, column 0"));
  // Finite, but the product with a code is not.
  CHECK_THAT(with_scale("fp8 in blocks", "weight_scale_inv", 4, 1e36f),
             Contains(kModule + ".weight_scale_inv\" has a value in row 1, column 1"));
  CHECK_THAT(with_scale("fp8 in blocks", "weight", 320 * 2 + 1, uint8_t{0xff}),
             Contains(kModule + ".weight\" has a value in row 2, column 1"));
}

TEST_CASE("values and codes of one matrix, or codes without a configuration, are errors") {
  CHECK_THAT(ErrorAfter("gptq",
                        [](FileTensors& tensors) {
                          tensors[kModule + ".weight"] = PlainModel().at(kModule + ".weight");
                        }),
             Contains(kModule + ".weight\" is there both with its values and quantised"));
  CHECK_THAT(LoadError(ConfigWith(""), Quantised("awq")),
             Contains("is quantised, but config.json has no quantization_config"));
}

TEST_CASE("a group size that does not divide the inputs is an error that names both") {
  CHECK_THAT(LoadError(ConfigWith(Gptq(4, 80)), Quantised("gptq")),
             Contains("has 192 inputs, which the group_size 80") && Contains(".weight\""));
  CHECK_THAT(LoadError(ConfigWith(Gptq(4, 64)), Quantised("gptq")),
             Contains(".scales\" has shape [6, 192]") && Contains("of shape [3, 192]"));
}

TEST_CASE("a quantization_config that is not supported is an error that names the field") {
  const std::pair<std::string, std::string> examples[] = {
      {"7", "config.json: quantization_config is 7; it must be an object"},
      {"{}", "quantization_config: quant_method is missing; supported: gptq, awq, compressed"},
      {R"({"quant_method": "bitsandbytes"})", "quant_method is \"bitsandbytes\"; supported: gptq"},
      {R"({"quant_method": 4})", "quant_method is 4"},
      {R"({"quant_method": "gptq"})", "bits is missing"},
      {Gptq(3, 128), "bits is 3; supported: 2, 4, 8"},
      {Gptq(4, 0), "group_size is 0"},
      {Gptq(4, -2), "group_size is -2"},
      {Gptq(4, 1 << 30), "group_size is 1073741824"},
      {Gptq(4, 128, R"(, "checkpoint_format": "marlin")"), "checkpoint_format is \"marlin\""},
      {Gptq(4, 128, R"(, "format": "gptq_v3")"), "format is \"gptq_v3\""},
      {Gptq(4, 128, R"(, "desc_act": "yes")"), "desc_act is \"yes\""},
      {Gptq(4, 128, R"(, "dynamic": {"+:.*down.*": {"bits": 8}})"), "dynamic is {"},
      {R"({"quant_method": "awq", "bits": 8})", "bits is 8; supported: 4"},
      {R"({"quant_method": "awq", "bits": 4, "version": "gemv"})",
       "version is \"gemv\"; supported: gemm"},
      {R"({"quant_method": "awq", "bits": 4, "zero_point": false})", "zero_point is false"},
      {R"({"quant_method": "fp8", "fmt": "e5m2"})", "fmt is \"e5m2\"; supported: e4m3"},
      {R"({"quant_method": "fp8", "weight_block_size": [128]})", "weight_block_size is [128]"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 0]})", "weight_block_size is [128,0]"},
      {R"({"quant_method": "compressed-tensors"})", "config_groups is missing"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"a": ["Linear"]}})",
       "config_groups: a: supported: an object"},
      {CompressedTensors("dense", R"("num_bits": 8)"),
       "group_0: format is missing; supported: pack"},
      {CompressedTensors("nvfp4-pack-quantized", R"("num_bits": 4)"), "supported: pack-quantized"},
      {CompressedTensors("pack-quantized", R"("num_bits": 3)"), "weights: num_bits is 3"},
      {CompressedTensors("pack-quantized", R"("num_bits": 4, "type": "float")"),
       "type is \"float\"; format pack-quantized"},
      {CompressedTensors("float-quantized", R"("num_bits": 4, "type": "float")"), "num_bits is 4"},
      {CompressedTensors("int-quantized", R"("strategy": "token")"), "strategy is \"token\""},
      {CompressedTensors("int-quantized", R"("strategy": "group")"), "group_size is missing"},
      {CompressedTensors("int-quantized", R"("strategy": "block")"), "block_structure is missing"},
      {CompressedTensors("pack-quantized",
                         R"("num_bits": 4, "symmetric": false, "strategy": "tensor")"),
       "strategy is \"tensor\"; packed zero points"},
      {CompressedTensors("pack-quantized", R"("num_bits": 4, "group_size": 32, "actorder": "x")"),
       "actorder is \"x\""},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": null}},
           "sparsity_config": {"format": "sparse-24-bitmask"}})",
       "sparsity_config is {"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": null}},
           "transform_config": {"config_groups": {"u": {}}}})",
       "transform_config is {"},
  };
  for (const auto& [config, error] : examples) {
    INFO(config);
    CHECK_THAT(ConfigError(config),
               Contains(error) && Contains("config.json: quantization_config"));
  }
}

TEST_CASE("random damage of header, config or data is an error or a model of sound reads") {
  std::mt19937 random(17);
  int n_errors = 0;
  for (const Format& format : AllFormats()) {
    Grid grid = (format.is_fp8 ? MakeFp8Grid : MakeGrid)(std::vector<float>(64 * 64, 0.01f), 64, 64,
                                                         format.grid, 2);
    FileTensors tensors;
    format.add("m", grid, tensors);
    const std::string file = SafetensorsText(tensors);
    uint64_t header_size;
    std::memcpy(&header_size, file.data(), 8);
    const TempFolder folder;
    for (int round = 0; round < 120; ++round) {
      std::string damaged = file, config = ConfigWith(format.config);
      for (int i = 0; i < 1 + round % 3; ++i) {
        // Digits in place of digits find more than arbitrary bytes, which make invalid JSON.
        std::string& text = round % 4 == 0 ? config : damaged;
        const size_t size = round % 4 == 0 ? config.size() : 8 + header_size;
        const size_t at = random() % size;
        const bool is_digit = text[at] >= '0' && text[at] <= '9';
        text[at] = static_cast<char>(is_digit ? '0' + random() % 10 : random());
      }
      folder.Write("model.safetensors", damaged);
      const absl::StatusOr<ModelDesc> desc = ModelDesc::FromJson(config, "c");
      const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
      if (!desc.ok() || !checkpoint.ok()) {
        ++n_errors;
        continue;
      }
      const auto stored = StoredTensor::Open(*checkpoint, desc->quantization, "m.weight", {64, 64});
      n_errors += !stored.ok();
      if (!stored.ok()) continue;
      std::vector<float> values(64 * 64);
      stored->ReadFp32(0, 64, values.data());
      (void)stored->Digest();
    }
  }
  CHECK(n_errors > 1000);
}

TEST_CASE("absurd shapes of the model are errors before anything is read") {
  // The config asks for more than any file has; the loader must not allocate it.
  const TempFolder folder;
  WriteCheckpoint(folder, "{}", Quantised("gptq"));
  const Checkpoint checkpoint = *Checkpoint::Open(folder.path());
  for (const Format& format : AllFormats()) {
    INFO(format.name);
    const auto desc = ModelDesc::FromJson(ConfigWith(format.config), "c");
    REQUIRE(desc.ok());
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{1 << 22, 1 << 18}, {1 << 18, 1 << 22}, {1, 1}, {8, 1 << 18}}) {
      const auto stored =
          StoredTensor::Open(checkpoint, desc->quantization, kModule + ".weight", shape);
      CHECK_FALSE(stored.ok());
    }
  }
}

}  // namespace baton
