// The shared file of packed weights, built once, mapped by all processes and rebuilt when damaged;
// and the weight sources behind it.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/weight_source.h"
#include "engine/cpu/machine/isa.h"
#include "engine/load_backend.h"
#include "engine/numerics/bf16.h"
#include "tests/engine/checkpoint/weights_file_rig.h"
#include "tests/engine/sequence_runner.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

const std::string kDemo = std::string(BATON_SOURCE_DIR) + "/models/demo";
const std::string kBiasModel = std::string(BATON_TEST_DATA) + "/models/llama_bias_fp16";
const std::string kTinyConfig = std::string(BATON_TEST_DATA) + "/shapes/llama-tiny.json";
const std::string kTinyModel = "random:" + kTinyConfig;
std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Flip(const std::string& path, int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const char byte = static_cast<char>(file.get());
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 0x10));
  REQUIRE(file.good());
}

}  // namespace

TEST_CASE("the second load maps what the first one built") {
  const TempFolder folder;
  const Loaded first = Load(folder.path());
  CHECK(first.fills == 1);
  CHECK(first.file->is_shared());
  CHECK(IsIntact(*first.file));
  const Loaded second = Load(folder.path());
  CHECK(second.fills == 0);
  CHECK(second.file->is_shared());
  CHECK(IsIntact(*second.file));
  CHECK_FALSE(fs::exists(CacheFile(folder.path()) + ".tmp"));
}

TEST_CASE("a damaged file is built again") {
  const TempFolder folder;
  const std::string path = CacheFile(folder.path());
  Load(folder.path());
  const int64_t size = static_cast<int64_t>(fs::file_size(path));
  // Each field of the header and the table, and bytes of every entry; not the padding between.
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < 64 + 3 * 48; i += 4) offsets.push_back(i);
  for (const int64_t i : {4096, 4495, 8192, 9215, 12288, 32287}) offsets.push_back(i);
  for (const int64_t offset : offsets) {
    INFO(offset);
    Flip(path, offset);
    const Loaded again = Load(folder.path());
    CHECK(again.fills == 1);
    CHECK(IsIntact(*again.file));
    CHECK(Load(folder.path()).fills == 0);
  }
  for (const int64_t length :
       {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{5000}, size - 1, size + 1}) {
    INFO(length);
    fs::resize_file(path, length);
    CHECK(IsIntact(*Load(folder.path()).file));
    CHECK(Load(folder.path()).fills == 0);
  }
  fs::remove(path);
  fs::create_directory(path);  // a folder in place of the file: the weights stay private
  const Loaded blocked = Load(folder.path());
  CHECK_FALSE(blocked.file->is_shared());
  CHECK(IsIntact(*blocked.file));
}

TEST_CASE("what a dead packer left is overwritten") {
  const TempFolder folder;
  folder.Write("0000000000001234.btnw.tmp", "half a file");
  CHECK(IsIntact(*Load(folder.path()).file));
  CHECK(Load(folder.path()).fills == 0);
}

TEST_CASE("a missing cache folder is made") {
  const TempFolder folder;
  CHECK(Load(folder.path() + "/a/b").file->is_shared());
}

TEST_CASE("processes that start at once pack once") {
  const TempFolder folder;
  constexpr int kProcesses = 6;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const Loaded loaded = Load(folder.path());
      ::_exit(IsIntact(*loaded.file) && loaded.file->is_shared() ? loaded.fills : 99);
    }
    children.push_back(child);
  }
  int fills = 0;
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) <= 1);
    fills += WEXITSTATUS(status);
  }
  CHECK(fills == 1);
}

TEST_CASE(
    "a backend gives the same logits from the cache, built or mapped, and from private memory") {
  const TempFolder folder;
  const std::string model = GENERATE(kDemo, kBiasModel, kTinyModel);
  INFO(model);
  const std::vector<int32_t> prompt{1, 17, 200, 3, 99, 45};
  EngineOptions options;
  options.model = model;
  std::vector<std::vector<float>> logits;
  std::vector<uint64_t> fingerprints;
  for (const std::string& cache_dir : {std::string(), folder.path(), folder.path()}) {
    options.cache_dir = cache_dir;
    const std::unique_ptr<Backend> backend = LoadOrDie(options);
    SequenceRunner runner(*backend, 64);
    logits.push_back(runner.FeedLast(prompt));
    fingerprints.push_back(backend->model_fingerprint());
  }
  CHECK(logits[0] == logits[1]);
  CHECK(logits[0] == logits[2]);
  CHECK(fingerprints[0] == fingerprints[1]);
  CHECK(fingerprints[0] == fingerprints[2]);
}

TEST_CASE("the fingerprint follows the tensors, not their place or age") {
  const auto fingerprint = [](const std::string& model, uint64_t seed = 1) {
    EngineOptions options;
    options.model = model;
    options.random_seed = seed;
    return LoadOrDie(options)->model_fingerprint();
  };
  const TempFolder folder;
  fs::copy(kBiasModel, folder.path(),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  fs::permissions(folder.file("model.safetensors"), fs::perms::owner_all);
  CHECK(fingerprint(folder.path()) == fingerprint(kBiasModel));
  Flip(folder.file("model.safetensors"),
       static_cast<int64_t>(fs::file_size(folder.file("model.safetensors"))) - 1000);
  CHECK(fingerprint(folder.path()) != fingerprint(kBiasModel));
  CHECK(fingerprint(kTinyModel, 1) == fingerprint(kTinyModel, 1));
  CHECK(fingerprint(kTinyModel, 1) != fingerprint(kTinyModel, 2));
}

TEST_CASE("changed weights are packed again") {
  const TempFolder cache, folder;
  fs::copy(kBiasModel, folder.path(),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  fs::permissions(folder.file("model.safetensors"), fs::perms::owner_all);
  EngineOptions options;
  options.model = folder.path();
  options.cache_dir = cache.path();
  const uint64_t before = LoadOrDie(options)->model_fingerprint();
  Flip(folder.file("model.safetensors"),
       static_cast<int64_t>(fs::file_size(folder.file("model.safetensors"))) - 1000);
  CHECK(LoadOrDie(options)->model_fingerprint() != before);
}

TEST_CASE("one file, many files and wider types are one model") {
  const std::string folder = std::string(BATON_TEST_DATA) + "/models/llama32";
  const SafetensorsFile whole = *SafetensorsFile::Open(folder + "/model.safetensors");
  const TempFolder split;
  split.Link("config.json", folder + "/config.json");
  // Tensors go to three files in turn; the last file stores them as fp32.
  std::string headers[3], data[3], index;
  int next = 0;
  for (const auto& [name, view] : whole.tensors()) {
    const int to = next++ % 3;
    const size_t begin = data[to].size();
    for (size_t i = 0; i < view.bytes.size(); i += 2) {
      if (to == 2) data[to].append(2, '\0');  // a bf16 is the upper half of its fp32
      data[to].append(reinterpret_cast<const char*>(&view.bytes[i]), 2);
    }
    const auto comma = [](std::string& text) { text += text.empty() ? "" : ","; };
    comma(headers[to]);
    headers[to] += absl::StrFormat(R"("%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]})",
                                   name, to == 2 ? "F32" : "BF16", absl::StrJoin(view.shape, ","),
                                   begin, data[to].size());
    comma(index);
    index += absl::StrFormat(R"("%s":"part-%d.safetensors")", name, to);
  }
  for (int i = 0; i < 3; ++i) {
    const std::string header = "{" + headers[i] + "}";
    std::string length(8, '\0');
    const uint64_t size = header.size();
    std::memcpy(length.data(), &size, sizeof(size));
    split.Write(absl::StrFormat("part-%d.safetensors", i), length + header + data[i]);
  }
  split.Write("model.safetensors.index.json", "{\"weight_map\":{" + index + "}}");

  const std::vector<int32_t> prompt{1, 17, 200, 3, 999, 45};
  for (const std::string dtype : {"bf16", "fp32"}) {
    std::vector<std::vector<float>> logits;
    for (const std::string& model : {folder, split.path()}) {
      EngineOptions options;
      options.model = model;
      options.dtype = dtype;
      const std::unique_ptr<Backend> backend = LoadOrDie(options);
      SequenceRunner runner(*backend, 64);
      logits.push_back(runner.FeedLast(prompt));
    }
    CHECK(logits[0] == logits[1]);
  }
}

TEST_CASE("random weights are the published formula") {
  const ModelDesc desc = *ReadModelDesc(kTinyModel);
  CHECK(desc.name == "random-llama-tiny");
  const auto source = *OpenWeightSource(kTinyModel, desc, 42);
  const auto value = [](uint32_t index, uint32_t id, uint32_t seed) {
    uint32_t h = index * 0x9E3779B1u + id * 0x85EBCA77u + seed;
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    h ^= h >> 16;
    const int sum = static_cast<int>((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24));
    return static_cast<float>(sum - 510) * static_cast<float>(0.02 / 147.8);
  };
  // The embedding is tensor 0, the query projection of layer 1 is 16 + 16 + 1.
  std::vector<bf16> row(static_cast<size_t>(desc.hidden));
  source->ReadBf16(0, 7, 1, row.data());
  for (int i = 0; i < desc.hidden; ++i) {
    CHECK(row[i] == FloatToBf16(value(7 * desc.hidden + i, 0, 42)));
  }
  const int q = source->IndexOf("layers.1.q");
  source->ReadBf16(q, 3, 1, row.data());
  CHECK(row[5] == FloatToBf16(value(3 * desc.hidden + 5, 33, 42)));
  const int norm = source->IndexOf("layers.0.attention_norm");
  std::vector<float> weights(static_cast<size_t>(desc.hidden));
  source->ReadFp32(norm, 0, desc.hidden, weights.data());
  CHECK(weights[9] == Bf16ToFloat(FloatToBf16(1.0f + 3.125f * value(9, 16, 42))));

  double sum = 0, squares = 0;
  std::vector<float> all(static_cast<size_t>(desc.vocab * desc.hidden));
  source->ReadFp32(0, 0, desc.vocab, all.data());
  for (const float v : all) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const double n = static_cast<double>(all.size());
  CHECK(std::abs(sum / n) < 5e-4);
  CHECK(std::sqrt(squares / n) == Approx(0.02).epsilon(0.02));
}

TEST_CASE("a checkpoint that does not fit its config is an error that names the tensor") {
  const auto error_with = [](const std::string& from, const std::string& to) {
    const TempFolder folder;
    std::string config = ReadFile(kBiasModel + "/config.json");
    const size_t at = config.find(from);
    REQUIRE(at != std::string::npos);
    folder.Write("config.json", config.replace(at, from.size(), to));
    folder.Link("model.safetensors", kBiasModel + "/model.safetensors");
    EngineOptions options;
    options.model = folder.path();
    return std::string(LoadBackend(options).status().message());
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(error_with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
             Contains("tensor \"model.layers.2.input_layernorm.weight\" is missing"));
  CHECK_THAT(error_with("\"vocab_size\": 331", "\"vocab_size\": 332"),
             Contains("tensor \"model.embed_tokens.weight\" has shape [331, 64]; config.json asks "
                      "for shape [332, 64]"));
  CHECK_THAT(error_with("\"intermediate_size\": 172", "\"intermediate_size\": 100000"),
             Contains("gate_proj.weight\" has shape [172, 64]"));
}

TEST_CASE("a head size that the kernels do not have is an error, not a crash") {
  const TempFolder folder;
  std::string config = ReadFile(kTinyConfig);
  const std::string from = "\"head_dim\": 32";
  REQUIRE(config.find(from) != std::string::npos);
  folder.Write("c.json", config.replace(config.find(from), from.size(), "\"head_dim\": 40"));
  EngineOptions options;
  options.model = "random:" + folder.file("c.json");
  CHECK_THAT(std::string(LoadBackend(options).status().message()),
             Catch::Matchers::Contains("head_dim is 40; the bf16 engine needs a multiple of 16"));
  options.dtype = "fp32";
  CHECK(LoadBackend(options).ok());
}

TEST_CASE("engine options out of range are errors that name the option") {
  using Catch::Matchers::Contains;
  const auto error = [](const auto& change) {
    EngineOptions options;
    options.model = kDemo;
    change(options);
    return std::string(LoadBackend(options).status().message());
  };
  CHECK_THAT(error([](EngineOptions& o) { o.page_tokens = 48; }), Contains("page_tokens is 48"));
  CHECK_THAT(error([](EngineOptions& o) { o.threads = -1; }), Contains("threads is -1"));
  CHECK_THAT(error([](EngineOptions& o) { o.limits.max_step_tokens = 0; }),
             Contains("max_step_tokens"));
  CHECK_THAT(error([](EngineOptions& o) { o.limits.max_slice_tokens = 0; }),
             Contains("max_slice_tokens"));
  CHECK_THAT(error([](EngineOptions& o) { o.limits.slice_keys = 100; }),
             Contains("slice_keys is 100; it must be a multiple of 512, or 0"));
  EngineOptions fp32;
  fp32.model = kDemo;
  fp32.dtype = "fp32";
  CHECK_THAT(std::string(LoadLabBackend(fp32, {.dense_mask = true}).status().message()),
             Contains("attention dense_mask goes with bf16"));
  CHECK_THAT(error([](EngineOptions& o) { o.dtype = "int3"; }), Contains("dtype is \"int3\""));
  CHECK_THAT(error([](EngineOptions& o) { o.kv_dtype = "fp8"; }), Contains("kv_dtype is \"fp8\""));
  CHECK_THAT(error([](EngineOptions& o) {
               o.kv_dtype = "int8";
               o.dtype = "fp32";
             }),
             Contains("kv_dtype int8 goes with bf16"));
  CHECK_THAT(error([](EngineOptions& o) { o.isa = "sse"; }), Contains("sse"));
  const std::vector<Isa> supported = SupportedIsas();
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    if (std::find(supported.begin(), supported.end(), isa) != supported.end()) continue;
    if (isa == Isa::kAmx && RequestAmxPermission()) continue;  // loading asks for the permission
    const std::string name(IsaName(isa));
    CHECK_THAT(error([&](EngineOptions& o) { o.isa = name; }), Contains(name));
  }
  CHECK_THAT(error([](EngineOptions& o) { o.max_context = 5000; }),
             Contains("max_context is 5000; the model demo has 4096 positions"));
  CHECK_THAT(error([](EngineOptions& o) { o.model = "random:/nowhere.json"; }),
             Contains("/nowhere.json"));
}

TEST_CASE("progress grows to one") {
  EngineOptions options;
  options.model = kDemo;
  options.threads = 1;
  std::vector<double> fractions;
  const auto note = [](void* context, double fraction) {
    static_cast<std::vector<double>*>(context)->push_back(fraction);
  };
  REQUIRE(LoadBackend(options, note, &fractions).ok());
  REQUIRE_FALSE(fractions.empty());
  CHECK(std::is_sorted(fractions.begin(), fractions.end()));
  CHECK(fractions.size() > 2);
  CHECK(fractions.back() == 1.0);
}

}  // namespace baton
