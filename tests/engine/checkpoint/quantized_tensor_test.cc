// Quantised checkpoints: every format gives exactly the values of its definition, a stored model
// computes the same as its dequantised twin, and an invalid one gives an error with its name.
#include <catch2/catch.hpp>
#include <random>

#include "engine/checkpoint/stored_tensor.h"
#include "tests/engine/checkpoint/quantized_models.h"
#include "tests/engine/sequence_runner.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;

std::vector<float> Logits(const std::string& config, const FileTensors& tensors,
                          const std::string& dtype) {
  const TempFolder folder;
  WriteCheckpoint(folder, config, tensors);
  EngineOptions options;
  options.model = folder.path();
  options.dtype = dtype;
  const std::unique_ptr<Backend> backend = LoadOrDie(options);
  SequenceRunner runner(*backend, 64);
  return runner.FeedLast(std::vector<int32_t>{1, 17, 100, 3, 99, 45});
}

}  // namespace

TEST_CASE("a quantised model computes what its dequantised twin computes, bit for bit", "[slow]") {
  const FileTensors plain = PlainModel();
  for (const std::string dtype : {"fp32", "bf16"}) {
    const std::vector<float> unquantised = Logits(ConfigWith(""), plain, dtype);
    for (const Format& format : AllFormats()) {
      INFO(format.name << " " << dtype);
      const Twins twins = MakeTwins(format, plain);
      const std::vector<float> logits = Logits(ConfigWith(format.config), twins.quantised, dtype);
      CHECK(logits == Logits(ConfigWith(""), twins.plain, dtype));
      CHECK(logits != unquantised);
    }
  }
}

TEST_CASE("every value comes out as the format defines it, whatever rows are read") {
  std::mt19937 random(3);
  for (const Format& format : AllFormats()) {
    INFO(format.name);
    const int64_t rows = 144, cols = 192;
    std::vector<float> values(static_cast<size_t>(rows * cols));
    for (float& value : values) {
      value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 5e-5f;
    }
    const Grid grid = (format.is_fp8 ? MakeFp8Grid : MakeGrid)(values, rows, cols, format.grid, 5);
    const std::vector<float> wanted = format.is_fp8 ? Fp8Values(grid) : GridValues(grid);
    FileTensors tensors;
    format.add("m", grid, tensors);
    const TempFolder folder;
    WriteCheckpoint(folder, ConfigWith(format.config), tensors);
    const ModelDesc desc = *ModelDesc::FromFolder(folder.path());
    const Checkpoint checkpoint = *Checkpoint::Open(folder.path());
    const auto stored = StoredTensor::Open(checkpoint, desc.quantization, "m.weight", {rows, cols});
    INFO(std::string(stored.status().message()));
    REQUIRE(stored.ok());
    REQUIRE(stored->Digest().ok());
    for (int round = 0; round < 40; ++round) {
      const int64_t first = round == 0 ? 0 : static_cast<int64_t>(random() % rows);
      const int64_t n = round == 0 ? rows : 1 + static_cast<int64_t>(random() % (rows - first));
      std::vector<float> read(static_cast<size_t>(n * cols));
      std::vector<bf16> rounded(read.size());
      stored->ReadFp32(first, n, read.data());
      stored->ReadBf16(first, n, rounded.data());
      int n_wrong = 0;
      for (size_t i = 0; i < read.size(); ++i) {
        const float value = wanted[first * cols + i];
        n_wrong += read[i] != value || rounded[i] != FloatToBf16(value);
      }
      CHECK(n_wrong == 0);
    }
  }
}

TEST_CASE("every e4m3 code has its value") {
  std::vector<uint8_t> codes;
  for (int code = 0; code < 256; ++code) codes.push_back(static_cast<uint8_t>(code));
  const TempFolder folder;
  WriteCheckpoint(folder, "{}",
                  {{"m.weight", {"F8_E4M3", {2, 128}, BytesOf(codes)}},
                   {"m.weight_scale", {"F32", {}, BytesOf(std::vector<float>{0.5f})}}});
  const Checkpoint checkpoint = *Checkpoint::Open(folder.path());
  const QuantizationDesc desc{{{CodeLayout::kFp8, 8, 0, 0, false, false, false}}};
  const auto stored = StoredTensor::Open(checkpoint, desc, "m.weight", {2, 128});
  REQUIRE(stored.ok());
  std::vector<float> values(256);
  stored->ReadFp32(0, 2, values.data());
  for (int code = 0; code < 256; ++code) {
    if ((code & 127) != 127) CHECK(values[code] == E4m3Value(code) * 0.5f);
  }
  CHECK(values[0x7e] == 224);  // the max is 448
  CHECK(values[0x01] == 0x1p-10f);
  CHECK_THAT(std::string(stored->Digest().status().message()),
             Contains("\"m.weight\" has a value in row 0, column 127 that is NaN"));
}

TEST_CASE("a zero point of 0 survives version 1 of GPTQ, which borrows for it") {
  Format format = FormatCalled("gptq");
  Grid grid = MakeGrid(std::vector<float>(64 * 32, 0.01f), 64, 32, format.grid, 1);
  for (size_t i = 0; i < grid.zeros.size(); i += 3) grid.zeros[i] = 0;
  FileTensors tensors;
  AddGptq("m", grid, false, tensors);
  // Makes version 1 from version 2 as writers do: subtracts one from every code of a word, as one
  // number.
  std::string& zeros = tensors.at("m.qzeros").bytes;
  for (size_t i = 0; i < zeros.size(); i += 4) {
    uint32_t word;
    std::memcpy(&word, zeros.data() + i, 4);
    word -= 0x11111111u;
    std::memcpy(zeros.data() + i, &word, 4);
  }
  const TempFolder folder;
  WriteCheckpoint(folder, ConfigWith(format.config), tensors);
  const ModelDesc desc = *ModelDesc::FromFolder(folder.path());
  const Checkpoint checkpoint = *Checkpoint::Open(folder.path());
  const auto stored = StoredTensor::Open(checkpoint, desc.quantization, "m.weight", {64, 32});
  REQUIRE(stored.ok());
  std::vector<float> values(64 * 32);
  stored->ReadFp32(0, 64, values.data());
  CHECK(values == GridValues(grid));
}

TEST_CASE("groups of several schemes are told apart by their tensors") {
  const FileTensors plain = PlainModel();
  const Twins int4 = MakeTwins(FormatCalled("packed int4"), plain);
  const Twins int8 = MakeTwins(FormatCalled("int8 per channel"), plain);
  Twins mixed;
  const auto take = [](const FileTensors& a, const FileTensors& b, FileTensors& out) {
    for (const auto& [name, tensor] : a) {
      if (name.find(".mlp.") == std::string::npos) out[name] = tensor;
    }
    for (const auto& [name, tensor] : b) {
      if (name.find(".mlp.") != std::string::npos) out[name] = tensor;
    }
  };
  take(int4.quantised, int8.quantised, mixed.quantised);
  take(int4.plain, int8.plain, mixed.plain);
  const std::string config = ConfigWith(R"(
      {"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
       "group_0": {"targets": ["re:.*self_attn.*"], "format": "pack-quantized",
                   "weights": {"num_bits": 4, "group_size": 32, "strategy": "group"}},
       "group_1": {"targets": ["re:.*mlp.*"], "format": "int-quantized",
                   "weights": {"num_bits": 8, "strategy": "channel"}}}})");
  CHECK(Logits(config, mixed.quantised, "bf16") == Logits(ConfigWith(""), mixed.plain, "bf16"));
}

TEST_CASE("fused tensors and experts of other families may be quantised") {
  const std::string model = GENERATE("falcon7b", "falcon40b", "mixtral");
  const std::string path = std::string(BATON_TEST_DATA) + "/models/" + model + "/config.json";
  const FileTensors plain = RandomCheckpoint(path, 3);
  const std::string config = ReadFileText(path);
  for (const std::string name : {"gptq", "awq", "packed int4", "int8 per channel"}) {
    Format format = FormatCalled(name);
    if (name == "awq") {  // groups of 64 do not divide 96
      format.config = R"({"quant_method": "awq", "bits": 4, "group_size": 32})";
      format.grid.group = 32;
    }
    INFO(model << " " << name);
    const Twins twins = MakeTwins(format, plain);
    const std::string quantised =
        "{\"quantization_config\": " + format.config + "," + config.substr(config.find('{') + 1);
    CHECK(Logits(quantised, twins.quantised, "bf16") == Logits(config, twins.plain, "bf16"));
    CHECK(twins.quantised.size() > twins.plain.size());
  }
}

TEST_CASE("fingerprints tell quantised models apart by codes, scales and configuration") {
  const Twins twins = MakeTwins(FormatCalled("gptq"), PlainModel());
  const auto fingerprint = [](const std::string& config, const FileTensors& tensors) {
    const TempFolder folder;
    WriteCheckpoint(folder, config, tensors);
    EngineOptions options;
    options.model = folder.path();
    return LoadOrDie(options)->model_fingerprint();
  };
  const std::string config = ConfigWith(Gptq(4, 32));
  const uint64_t whole = fingerprint(config, twins.quantised);
  CHECK(whole == fingerprint(config, twins.quantised));
  CHECK(whole != fingerprint(ConfigWith(Gptq(4, 32, R"(, "checkpoint_format": "gptq_v2")")),
                             twins.quantised));
  for (const std::string part : {"qweight", "qzeros", "scales"}) {
    FileTensors changed = twins.quantised;
    changed.at("model.layers.1.mlp.down_proj." + part).bytes[17] ^= 1;
    CHECK(whole != fingerprint(config, changed));
  }
}

}  // namespace baton
