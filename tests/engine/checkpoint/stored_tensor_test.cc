// Tensors of unquantised checkpoints: the values of every type, and detection of invalid values
// anywhere.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "engine/checkpoint/finite_check.h"
#include "engine/checkpoint/stored_tensor.h"
#include "engine/load_backend.h"
#include "tests/engine/checkpoint/checkpoint_writer.h"
#include "tests/engine/sequence_runner.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;

const std::string kTinyConfig = std::string(BATON_TEST_DATA) + "/shapes/llama-tiny.json";
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
int64_t FirstBad(const std::vector<T>& values, FiniteRule rule) {
  return FirstBadValue(std::as_bytes(std::span(values)), rule);
}

uint32_t BitsOf(float value) { return __builtin_bit_cast(uint32_t, value); }

// A file with one tensor "t", [rows, cols].
struct OneTensor {
  OneTensor(const std::string& dtype, std::vector<int64_t> shape, const std::string& bytes) {
    folder.Write("model.safetensors", SafetensorsText({{"t", {dtype, shape, bytes}}}));
    checkpoint = *Checkpoint::Open(folder.path());
    tensor = StoredTensor::Open(checkpoint, {}, "t", shape);
    REQUIRE(tensor.ok());
  }
  TempFolder folder;
  Checkpoint checkpoint;
  absl::StatusOr<StoredTensor> tensor;
};

}  // namespace

TEST_CASE("every bit pattern of a half is good or bad as IEEE says") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const bool bf16_bad = !std::isfinite(Bf16ToFloat(half));
    CHECK((FirstBad<uint16_t>({half}, kFiniteBf16) == 0) == bf16_bad);
    const bool fp16_bad = (bits >> 10 & 31) == 31;
    CHECK((FirstBad<uint16_t>({half}, kFiniteFp16) == 0) == fp16_bad);
  }
}

TEST_CASE("an fp32 value is bad where its bf16 is not finite") {
  for (uint32_t top = 0; top < 0x10000; ++top) {
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0xffffu}) {
      const float value = __builtin_bit_cast(float, top << 16 | low);
      const bool is_bad = !std::isfinite(Bf16ToFloat(FloatToBf16(value)));
      CHECK((FirstBad<float>({value}, kFiniteFp32) == 0) == is_bad);
    }
  }
}

TEST_CASE("a bad value is found at every place of every length") {
  for (size_t n = 1; n <= 21; ++n) {
    for (size_t at = 0; at < n; ++at) {
      // Neighbours with the max magnitude: lanes must not spill into each other.
      std::vector<uint16_t> halves(n, 0xff7f);
      CHECK(FirstBad(halves, kFiniteBf16) == -1);
      halves[at] = 0x7f80;
      halves[n - 1] = 0xffff;
      CHECK(FirstBad(halves, kFiniteBf16) == static_cast<int64_t>(at));
      std::vector<uint8_t> bytes(n, 0xfe);
      CHECK(FirstBad(bytes, {1, 0x7f}) == -1);
      bytes[at] = 0x7f;
      CHECK(FirstBad(bytes, {1, 0x7f}) == static_cast<int64_t>(at));
      std::vector<float> floats(n, -3.38e38f);
      CHECK(FirstBad(floats, kFiniteFp32) == -1);
      floats[at] = kNan;
      CHECK(FirstBad(floats, kFiniteFp32) == static_cast<int64_t>(at));
    }
  }
  CHECK(FirstBadValue({}, kFiniteBf16) == -1);
}

TEST_CASE("fp16 and fp32 are rounded to bf16 once, to nearest even") {
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) halves.push_back(static_cast<uint16_t>(bits));
  const OneTensor fp16("F16", {64, 1024}, BytesOf(halves));
  std::vector<float> wide(halves.size());
  std::vector<bf16> rounded(halves.size());
  fp16.tensor->ReadFp32(0, 64, wide.data());
  fp16.tensor->ReadBf16(0, 64, rounded.data());
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double fraction = bits & 1023;
    if (exponent == 31) continue;  // refused at load
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    const float value = static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
    CHECK(BitsOf(wide[bits]) == BitsOf(value));
    CHECK(rounded[bits] == FloatToBf16(value));
  }

  // Halfway cases round to the even neighbour, all other values to the nearest.
  const std::vector<std::pair<uint32_t, bf16>> cases{
      {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f817fff, 0x3f81},
      {0xbf818000, 0xbf82}, {0x00000001, 0x0000}, {0x00018000, 0x0002}, {0x7f7f7fff, 0x7f7f}};
  std::vector<uint32_t> words;
  for (const auto& [bits, wanted] : cases) words.push_back(bits);
  const OneTensor fp32("F32", {static_cast<int64_t>(words.size())}, BytesOf(words));
  fp32.tensor->ReadBf16(0, static_cast<int64_t>(words.size()), rounded.data());
  for (size_t i = 0; i < cases.size(); ++i) CHECK(rounded[i] == cases[i].second);
}

TEST_CASE("rows are read from where they lie") {
  std::vector<float> values(7 * 5);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const OneTensor matrix("F32", {7, 5}, BytesOf(values));
  std::vector<float> rows(10);
  matrix.tensor->ReadFp32(3, 2, rows.data());
  for (int i = 0; i < 10; ++i) CHECK(rows[i] == static_cast<float>(15 + i));
}

TEST_CASE("a model with a value that is not finite is refused by tensor and row") {
  const FileTensors good = RandomCheckpoint(kTinyConfig, 1);
  const std::string config = ReadFileText(kTinyConfig);
  struct Example {
    std::string tensor;
    int64_t row, column;
    float value;
  };
  const Example example = GENERATE(
      Example{"model.embed_tokens.weight", 499, 95, kNan},
      Example{"model.layers.1.mlp.down_proj.weight", 0, 0, kInfinity},
      Example{"model.layers.2.self_attn.q_proj.weight", 17, 33, -kInfinity},
      Example{"model.layers.2.self_attn.v_proj.weight", 63, 1, 3.4e38f},  // infinite in bf16
      Example{"model.norm.weight", 11, 0, kNan});
  FileTensors tensors = good;
  FileTensor& bad = tensors.at(example.tensor);
  const int64_t cols = bad.shape.size() == 2 ? bad.shape[1] : 1;
  std::memcpy(bad.bytes.data() + (example.row * cols + example.column) * 4, &example.value, 4);
  const TempFolder folder, cache;
  WriteCheckpoint(folder, config, tensors);
  const std::string wanted =
      absl::StrFormat("tensor \"%s\" has a value in row %d, column %d that is NaN", example.tensor,
                      example.row, example.column);
  EngineOptions options;
  options.model = folder.path();
  for (const std::string dtype : {"fp32", "bf16"}) {
    for (const std::string& cache_dir : {std::string(), cache.path()}) {
      options.dtype = dtype;
      options.cache_dir = cache_dir;
      CHECK_THAT(std::string(LoadBackend(options).status().message()), Contains(wanted));
    }
  }
  // Only the lock is left of the attempt, and valid weights load after it.
  for (const auto& entry : std::filesystem::directory_iterator(cache.path())) {
    CHECK(entry.path().extension() == ".lock");
  }
  WriteCheckpoint(folder, config, good);
  CHECK(LoadBackend(options).ok());
}

TEST_CASE("NaN is found in bf16 and fp16 checkpoints, also in an embedding that is not packed") {
  const FileTensors fp32 = RandomCheckpoint(kTinyConfig, 1);
  const bool is_bf16 = GENERATE(true, false);
  FileTensors tensors;
  for (const auto& [name, tensor] : fp32) {
    std::vector<uint16_t> halves(tensor.bytes.size() / 4, is_bf16 ? 0x3c00 : 0x2c00);
    tensors[name] = {is_bf16 ? "BF16" : "F16", tensor.shape, BytesOf(halves)};
  }
  tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
  const uint16_t nan = is_bf16 ? 0x7fc0 : 0x7e00;
  std::string& bytes = tensors.at("model.embed_tokens.weight").bytes;
  std::memcpy(bytes.data() + (100 * 96 + 7) * 2, &nan, 2);
  std::string config = ReadFileText(kTinyConfig);
  const std::string tied = "\"tie_word_embeddings\": true";
  config.replace(config.find(tied), tied.size(), "\"tie_word_embeddings\": false");
  const TempFolder folder;
  WriteCheckpoint(folder, config, tensors);
  EngineOptions options;
  options.model = folder.path();
  CHECK_THAT(std::string(LoadBackend(options).status().message()),
             Contains("tensor \"model.embed_tokens.weight\" has a value in row 100, column 7"));
}

}  // namespace baton
