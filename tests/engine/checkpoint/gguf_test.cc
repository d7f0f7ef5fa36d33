// GGUF files: values compared with the gguf package, metadata, and files with false claims.
#include "engine/checkpoint/gguf.h"

#include <zlib.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "engine/checkpoint/gguf_model.h"
#include "engine/checkpoint/stored_tensor.h"
#include "engine/checkpoint/weight_source.h"
#include "tests/engine/model/model_configs.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;

constexpr uint64_t kHuge = uint64_t{1} << 63;

// Returns the error of opening, describing or loading the file; empty: the model is valid.
std::string ErrorOfBytes(const std::string& bytes) {
  const TempFolder folder;
  folder.Write("model.gguf", bytes);
  const std::string path = folder.file("model.gguf");
  const absl::StatusOr<ModelDesc> model = ReadModelDesc(path);
  absl::Status status = model.status();
  if (model.ok()) status = OpenWeightSource(path, *model, 0).status();
  // Every error names the file.
  if (!status.ok()) CHECK_THAT(std::string(status.message()), Contains("model.gguf: "));
  return std::string(status.message());
}

std::string ErrorWith(const std::string& key, const std::string& value,
                      const std::string& architecture = "llama") {
  GgufWriter writer = SmallGguf(architecture);
  writer.Set(key, value);
  return ErrorOfBytes(writer.Bytes());
}

template <typename Change>
std::string ErrorAfter(const Change& change) {
  GgufWriter writer = SmallGguf();
  change(writer);
  return ErrorOfBytes(writer.Bytes());
}

}  // namespace

TEST_CASE("values are those of the gguf package, bit for bit, in every supported type") {
  std::set<std::string> types;
  for (const std::string name : {"gguf_llama", "gguf_qwen2", "gguf_qwen3"}) {
    const absl::StatusOr<GgufFile> file = GgufFile::Open(kModels + name + "/model.gguf");
    INFO(std::string(file.status().message()));
    REQUIRE(file.ok());
    const boost::json::value values = boost::json::parse(ReadAll(kModels + name + "/values.json"));
    size_t n_found = 0;
    for (const auto& entry : values.as_object()) {
      const std::string tensor_name = entry.key();
      INFO(name << " " << tensor_name);
      const boost::json::value& expected = entry.value();
      std::vector<int64_t> shape;
      for (const auto& dim : expected.at("shape").as_array()) shape.push_back(dim.as_int64());
      const absl::StatusOr<StoredTensor> tensor = StoredTensor::Open(*file, tensor_name, shape);
      INFO(std::string(tensor.status().message()));
      REQUIRE(tensor.ok());
      const int64_t n = shape[0] * (shape.size() == 2 ? shape[1] : 1);
      std::vector<float> read(static_cast<size_t>(n));
      tensor->ReadFp32(0, shape[0], read.data());
      const auto& first = expected.at("first").as_array();
      for (size_t i = 0; i < first.size(); ++i) {
        CHECK(read[i] == static_cast<float>(first[i].to_number<double>()));
      }
      const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(read.data()),
                              static_cast<uInt>(read.size() * sizeof(float)));
      CHECK(crc == expected.at("crc32").to_number<uLong>());
      // Rows one by one, and rounded.
      std::vector<float> row(static_cast<size_t>(n / shape[0]));
      std::vector<bf16> rounded(row.size());
      tensor->ReadFp32(shape[0] / 2, 1, row.data());
      tensor->ReadBf16(shape[0] / 2, 1, rounded.data());
      for (size_t i = 0; i < row.size(); ++i) {
        CHECK(row[i] == read[static_cast<size_t>(shape[0] / 2) * row.size() + i]);
        CHECK(rounded[i] == FloatToBf16(row[i]));
      }
      CHECK(tensor->Digest().ok());
      types.insert(expected.at("type").as_string().c_str());
      ++n_found;
    }
    CHECK(n_found + (name == std::string("gguf_llama") ? 1 : 0) == file->tensors().size());
  }
  CHECK(types == std::set<std::string>{"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
                                       "Q4_K", "Q5_K", "Q6_K"});
}

TEST_CASE("the metadata say what a config.json would") {
  const absl::StatusOr<ModelDesc> model = ReadModelDesc(kModels + "gguf_llama/model.gguf");
  INFO(std::string(model.status().message()));
  REQUIRE(model.ok());
  CHECK((model->architecture == "LlamaForCausalLM" && model->name == "model"));
  CHECK((model->n_layers == 2 && model->hidden == 256 && model->n_heads == 4));
  CHECK((model->n_kv_heads == 2 && model->head_dim == 64 && model->intermediate == 256));
  CHECK((model->vocab == 1000 && model->max_positions == 2048 && !model->tied_embeddings));
  CHECK((model->rope.theta == 500000 && model->rope.scaling == RopeDesc::Scaling::kDivided));
  CHECK(model->eos_tokens == std::vector<int32_t>{989, 997, 996});
  const absl::StatusOr<ModelDesc> qwen3 = ReadModelDesc(kModels + "gguf_qwen3/model.gguf");
  REQUIRE(qwen3.ok());
  CHECK((qwen3->qk_norm && qwen3->head_dim == 32 && !qwen3->qkv_bias));
  const absl::StatusOr<ModelDesc> qwen2 = ReadModelDesc(kModels + "gguf_qwen2/model.gguf");
  REQUIRE(qwen2.ok());
  CHECK((qwen2->qkv_bias && !qwen2->o_bias && qwen2->head_dim == 16));
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    CHECK(ErrorOfBytes(SmallGguf(architecture).Bytes()).empty());
  }
}

TEST_CASE("metadata that no model can be made of are refused by their key") {
  const auto in = [](uint32_t value) { return GgufWriter::Int(value); };
  const auto text = [](std::string_view value) { return GgufWriter::Text(value); };
  const std::string huge = GgufBytes().Add<uint32_t>(10).Add<uint64_t>(kHuge).bytes();
  CHECK_THAT(ErrorWith("general.architecture", text("bert")),
             Contains("\"general.architecture\" is \"bert\"; supported: llama, qwen2, qwen3"));
  CHECK_THAT(ErrorWith("general.architecture", ""), Contains("is missing"));
  CHECK_THAT(ErrorWith("general.type", text("adapter")), Contains("general.type"));
  CHECK_THAT(ErrorWith("split.count", in(3)), Contains("\"split.count\" is 3"));
  CHECK_THAT(ErrorWith("general.quantization_version", in(1)), Contains("quantization_version"));
  CHECK_THAT(ErrorWith("llama.block_count", ""), Contains("llama.block_count is missing"));
  CHECK_THAT(ErrorWith("llama.block_count", in(0)), Contains("llama.block_count is 0"));
  CHECK_THAT(ErrorWith("llama.block_count", in(4'000'000'000)), Contains("llama.block_count is"));
  CHECK_THAT(ErrorWith("llama.block_count", huge),
             Contains("llama.block_count is \"out of range\""));
  for (const float bad : {std::nanf(""), INFINITY}) {
    CHECK_THAT(ErrorWith("llama.rope.freq_base", GgufWriter::Float(bad)),
               Contains("llama.rope.freq_base is \""));
  }
  CHECK_THAT(ErrorWith("llama.embedding_length", text("wide")),
             Contains("llama.embedding_length is"));
  CHECK_THAT(ErrorWith("llama.feed_forward_length", GgufWriter::Numbers<uint32_t>(4, {96, 96})),
             Contains("llama.feed_forward_length is \"an array of 2\""));
  CHECK_THAT(ErrorWith("llama.attention.head_count", in(3)), Contains("llama.embedding_length"));
  CHECK_THAT(ErrorWith("llama.attention.layer_norm_rms_epsilon", ""),
             Contains("layer_norm_rms_epsilon\" is missing"));
  CHECK_THAT(
      ErrorWith("llama.attention.value_length", in(16)),
      Contains("\"llama.attention.value_length\" is 16; supported: the width of a head, 32"));
  CHECK_THAT(ErrorWith("llama.rope.dimension_count", in(16)), Contains("rope.dimension_count"));
  CHECK_THAT(ErrorWith("llama.rope.scaling.type", text("longrope")),
             Contains("supported: none, linear, yarn"));
  CHECK_THAT(ErrorWith("llama.rope.scaling.type", text("yarn")),
             Contains("llama.rope.scaling.factor\" is missing"));
  CHECK_THAT(ErrorWith("llama.rope.scaling.attn_factor", GgufWriter::Float(2)),
             Contains("supported: 1"));
  CHECK_THAT(ErrorWith("llama.expert_count", in(8)), Contains("\"llama.expert_count\" is 8"));
  CHECK_THAT(ErrorWith("llama.logit_scale", GgufWriter::Float(2)),
             Contains("metadata \"llama.logit_scale\" is 2; supported: files without it"));
  CHECK_THAT(ErrorWith("tokenizer.ggml.eos_token_id", in(8)),
             Contains("tokenizer.ggml.eos_token_id is [8]"));
  CHECK(ErrorWith("general.name", text("any")).empty());
  CHECK(ErrorWith("gemma.logit_scale", GgufWriter::Float(2)).empty());
}

TEST_CASE("tensors that do not make the model are refused by name and type") {
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.tensors.pop_back(); }),
             Contains("tensor \"output_norm.weight\" is missing; the metadata ask for shape [64]"));
  CHECK_THAT(
      ErrorAfter([](GgufWriter& w) { w.AddFloats("blk.0.attn_rel_b.weight", {4}, 1); }),
      Contains("tensor \"blk.0.attn_rel_b.weight\" is not one of a model of architecture llama "
               "with 1 layers"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.AddFloats("blk.1.attn_norm.weight", {64}, 1); }),
             Contains("\"blk.1.attn_norm.weight\" is not one"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.tensors[0].name = "embd.weight"; }),
             Contains("\"token_embd.weight\" is missing"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.Set("llama.feed_forward_length", w.Int(64)); }),
             Contains("has shape [96, 64]; the metadata ask for shape [64, 64]"));
  // Q2_K: 256 values in 84 bytes; only its name is known.
  CHECK_THAT(ErrorAfter([](GgufWriter& w) {
               w.tensors.clear();
               w.AddTensor("token_embd.weight", {256, 8}, 10, std::string(8 * 84, '\0'));
               w.Set("llama.embedding_length", w.Int(256));
             }),
             Contains("\"token_embd.weight\" has type Q2_K; supported: F32, F16, BF16, Q4_0,"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.tensors[0].type = 77; }),
             Contains("\"token_embd.weight\" has type 77, which is not known; supported: F32"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) {
               w.tensors.pop_back();
               w.AddTensor("output_norm.weight", {64}, 8, std::string(2 * 34, '\0'));
             }),
             Contains("\"output_norm.weight\" has type Q8_0; supported for norms and biases"));
  for (const float bad : {0.0f, -1.0f, 1e9f, std::nanf("")}) {
    CHECK_THAT(ErrorAfter([&](GgufWriter& w) { w.AddFloats("rope_freqs.weight", {16}, bad); }),
               Contains("\"rope_freqs.weight\" has "));
  }
  CHECK_THAT(ErrorAfter([&](GgufWriter& w) { w.AddFloats("rope_freqs.weight", {8}, 1); }),
             Contains("supported: F32 of [16]"));
  CHECK(ErrorAfter([&](GgufWriter& w) { w.AddFloats("rope_freqs.weight", {16}, 1); }).empty());
}

TEST_CASE("a block with a scale that is not finite is an error that names tensor and place") {
  GgufWriter writer = SmallGguf();
  writer.tensors.clear();
  std::string blocks(8 * 2 * 34, '\0');  // Q8_0, 64 values a row
  blocks[3 * 34] = 0x00;                 // the second block of row 1: infinity
  blocks[3 * 34 + 1] = 0x7c;
  blocks[3 * 34 + 2] = 1;
  writer.AddTensor("token_embd.weight", {64, 8}, 8, blocks);
  const TempFolder folder;
  folder.Write("model.gguf", writer.Bytes());
  const GgufFile file = *GgufFile::Open(folder.file("model.gguf"));
  const StoredTensor tensor = *StoredTensor::Open(file, "token_embd.weight", {8, 64});
  CHECK_THAT(std::string(tensor.Digest().status().message()),
             Contains("\"token_embd.weight\" has a value in row 1, column 32"));
}

TEST_CASE("lying headers are refused by what and where") {
  const std::string good = SmallGguf().Bytes();
  REQUIRE(ErrorOfBytes(good).empty());
  CHECK_THAT(ErrorOfBytes(""), Contains("not a GGUF file"));
  CHECK_THAT(ErrorOfBytes("GGML" + good.substr(4)), Contains("not a GGUF file"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.version = 1; }),
             Contains("GGUF version 1; supported"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.version = 0x03000000; }), Contains("big-endian"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.more_values = INT64_MAX; }),
             Contains("metadata values, more than the"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.more_tensors = INT64_MIN; }),
             Contains("tensors, more than the"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.more_tensors = -int64_t(w.tensors.size()) - 1; }),
             Contains("tensors, more than the"));  // 2^64 - 1
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.more_values = 1; }), Contains("model.gguf: "));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.values.push_back(w.values[1]); }),
             Contains("metadata \"llama.block_count\" is there twice"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.AddFloats("output_norm.weight", {64}, 1); }),
             Contains("tensor \"output_norm.weight\" is there twice"));
  for (const uint64_t size : {kHuge, kHuge - 1, ~uint64_t{0}, uint64_t{1} << 40}) {
    INFO(size);
    CHECK_THAT(ErrorAfter([&](GgufWriter& w) {
                 w.Set("x", GgufBytes().Add<uint32_t>(8).Add<uint64_t>(size).bytes());
               }),
               Contains(std::to_string(size) + " bytes for metadata \"x\""));
    for (const uint32_t type : {0u, 5u, 8u, 12u}) {
      CHECK_THAT(ErrorAfter([&](GgufWriter& w) { w.Set("x", w.Array(type, size, "")); }),
                 Contains(std::to_string(size) + " values of metadata \"x\", more than the"));
    }
    CHECK_THAT(ErrorAfter([&](GgufWriter& w) {
                 w.tensors[0].dims = {size, 8};
               }),
               Contains("model.gguf: tensor \"token_embd.weight\" "));
    CHECK_THAT(ErrorAfter([&](GgufWriter& w) {
                 w.tensors[0].dims = {64, size};
               }),
               Contains("model.gguf: tensor \"token_embd.weight\" "));
    CHECK_THAT(ErrorAfter([&](GgufWriter& w) { w.tensors.back().offset = size / 32 * 32; }),
               Contains("\"output_norm.weight\" has offset"));
  }
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.tensors[0].dims = {}; }),
             Contains("has 0 dimensions"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) {
               w.tensors[0].dims = {64, 8, 1, 1, 1};
             }),
             Contains("has 5 dimensions"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) {
               w.tensors[0].dims = {0, 8};
             }),
             Contains("dimension of 0"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.tensors[0].type = 12; }),
             Contains("rows of 64 values, which are not whole blocks of 256, as type Q4_K has"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.tensors[1].offset -= 32; }), Contains("it overlaps"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.tensors[1].offset = 0; }), Contains("it overlaps"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.tensors[1].offset += 32; }), Contains("a hole"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.tensors[1].offset += 1; }),
             Contains("no multiple of the alignment, 32"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.Set("x", GgufBytes().Add<uint32_t>(13).bytes()); }),
             Contains("metadata \"x\" has type 13"));
  CHECK_THAT(ErrorAfter([](GgufWriter& w) { w.Set("x", w.Array(9, 1, "")); }),
             Contains("is an array of arrays"));
  for (const uint32_t bad : {0u, 3u, 48u, 1u << 31}) {
    CHECK_THAT(ErrorWith("general.alignment", GgufWriter::Int(bad)), Contains("general.alignment"));
  }
  CHECK_THAT(ErrorWith("general.alignment", GgufWriter::Text("32")), Contains("is no integer"));
  CHECK_THAT(ErrorWith("general.alignment", GgufWriter::Int(4096)), Contains("\" "));
  CHECK(ErrorAfter([](GgufWriter& w) {  // the change is valid
          GgufWriter other;
          other.values = w.values;
          other.alignment = 64;
          other.Set("general.alignment", w.Int(64));
          for (const auto& t : w.tensors) other.AddTensor(t.name, t.dims, t.type, t.data);
          w = other;
        })
            .empty());
  CHECK_THAT(ErrorOfBytes(good + std::string(100, 'x')), Contains("bytes follow the last tensor"));
}

TEST_CASE("a file cut short anywhere is refused") {
  const std::string good = SmallGguf().Bytes();
  for (size_t size = 0; size < good.size(); size += size < 2000 ? 7 : 997) {
    INFO(size);
    CHECK_FALSE(ErrorOfBytes(good.substr(0, size)).empty());
  }
  CHECK_FALSE(ErrorOfBytes(good.substr(0, good.size() - 1)).empty());
}

TEST_CASE("random damage of a header is refused or read, and never more than that") {
  const std::string good = SmallGguf().Bytes();
  const uint32_t seed = static_cast<uint32_t>(std::random_device()());
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const TempFolder folder;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (uint32_t n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % 1500;
      if (random() % 3 == 0) {  // a number near a limit
        const uint64_t values[] = {kHuge, kHuge - 1, ~uint64_t{0}, 0, uint64_t{1} << 32};
        std::memcpy(&bytes[at], &values[random() % 5], 8);
      } else {
        bytes[at] = static_cast<char>(random());
      }
    }
    folder.Write("model.gguf", bytes);
    const std::string path = folder.file("model.gguf");
    const absl::StatusOr<ModelDesc> model = ReadModelDesc(path);
    if (!model.ok()) continue;
    const auto source = OpenWeightSource(path, *model, 0);
    if (!source.ok()) continue;
    ComputePool pool(1, 0);
    (void)(*source)->Fingerprint(pool).status();
  }
}

}  // namespace baton
