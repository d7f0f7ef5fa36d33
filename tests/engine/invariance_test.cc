// A request's logits depend on model, tokens and position alone: not on chunk, batch, page size,
// threads, ISA path, layer cuts, or whether a token came as prompt or was decoded. Golden digests
// hold machines of every kind to the same bits.
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_format.h"
#include "engine/cpu/isa.h"
#include "engine/local_engine.h"
#include "engine/oracle_case.h"
#include "engine/sequence_runner.h"

namespace baton {
namespace {

const std::string kTinyModel = std::string("random:") + BATON_TEST_DATA + "/shapes/llama-tiny.json";
const std::string kTinyMoeModel =
    std::string("random:") + BATON_SOURCE_DIR + "/configs/shapes/tiny-moe.json";
const std::string kDemoModel = std::string(BATON_SOURCE_DIR) + "/models/demo";
// Of each type of weights and KV: its golden digests, and the models they are kept of.
struct Golden {
  std::string dtype, id, kv_dtype;
  std::vector<std::string> models;
  std::string path() const {
    return BATON_TEST_DATA + ("/golden/cpu-x86" + (dtype == "bf16" ? "" : "-" + id) +
                              (kv_dtype == "bf16" ? "" : "-kv-" + kv_dtype) + ".json");
  }
  std::string numerics_id() const { return "v1/cpu-x86/" + id + "/kv-" + kv_dtype + "/l2"; }
};

// The families and what tells them from Llama, each one of the reference models.
const std::vector<std::string> kFamilies{
    "qwen2",      "qwen3",     "mistral_window",  "mixtral", "qwen2_moe",
    "qwen3_moe",  "falcon7b",  "falcon40b",       "gemma2",  "gemma3",
    "phi3_short", "phi3_long", "deepseek_v2_lite"};
const std::vector<std::string> kGoldenModels{
    "tiny",    "tiny-moe",   "demo",      "qwen2",           "qwen3",     "mistral_window",
    "mixtral", "qwen2_moe",  "qwen3_moe", "falcon7b",        "falcon40b", "gemma2",
    "gemma3",  "phi3_short", "phi3_long", "deepseek_v2_lite"};
const std::vector<std::string> kIntegerModels{"tiny", "tiny-moe", "demo", "qwen2"};
const std::vector<Golden> kGoldens{
    {"bf16", "bf16", "bf16", kGoldenModels},
    {"int8", "int8", "bf16", kIntegerModels},
    {"int4", "int4g128", "bf16", kIntegerModels},
    {"bf16", "bf16", "int8", {"tiny", "demo", "gemma2", "mistral_window", "deepseek_v2_lite"}}};

std::string ModelOf(const std::string& name) {
  if (name == "tiny") return kTinyModel;
  if (name == "tiny-moe") return kTinyMoeModel;
  if (name == "demo") return kDemoModel;
  return std::string(BATON_TEST_DATA) + "/models/" + name;
}

struct Setting {
  Isa isa = Isa::kAvx2;
  int threads = 1;
  int page_tokens = 64;
  std::string kv_dtype = "bf16";
};

std::vector<Isa> Paths() {
  RequestAmxPermission();
  return SupportedIsas();
}

std::unique_ptr<LocalEngine> MakeEngine(const std::string& model, const Setting& setting,
                                        const std::string& dtype = "bf16", int int4_group = 128) {
  EngineOptions options;
  options.int4_group = int4_group;
  options.model = model;
  options.dtype = dtype;
  options.kv_dtype = dtype == "fp32" ? "bf16" : setting.kv_dtype;
  options.isa = dtype == "fp32" ? "auto" : std::string(IsaName(setting.isa));
  options.threads = setting.threads;
  options.page_tokens = setting.page_tokens;
  options.max_step_tokens = 1024;
  absl::StatusOr<std::unique_ptr<LocalEngine>> engine =
      LocalEngine::Create(options, 4096 / setting.page_tokens);
  INFO(std::string(engine.status().message()));
  REQUIRE(engine.ok());
  return *std::move(engine);
}

// 32 requests; number 0 is longer than one attention segment of 512 keys, the others short and of
// every length modulo the sizes that could matter. Some sample.
std::vector<LocalRequest> MakeRequests(int vocab) {
  std::vector<LocalRequest> requests(32);
  uint32_t state = 12345;
  for (int i = 0; i < 32; ++i) {
    const int length = i == 0 ? 607 : 1 + (i * 37) % 75;
    for (int t = 0; t < length; ++t) {
      state = state * 1664525u + 1013904223u;
      requests[i].prompt.push_back(static_cast<int32_t>((state >> 8) % vocab));
    }
    requests[i].max_tokens = 6;
    requests[i].ignore_eos = true;
    if (i % 3 == 1) {
      requests[i].sampling = {.temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .seed = 7u + i};
    }
  }
  return requests;
}

// 500 at most: what the digests of the first models were made with.
int VocabOf(LocalEngine& engine) { return std::min(500, engine.backend().model().vocab); }

// What must be equal, request by request.
using Trace = std::vector<std::pair<std::vector<int32_t>, std::vector<uint64_t>>>;

Trace Run(LocalEngine& engine, const std::vector<LocalRequest>& requests, int batch, int chunk) {
  Trace trace;
  for (size_t first = 0; first < requests.size(); first += batch) {
    const size_t n = std::min<size_t>(batch, requests.size() - first);
    absl::StatusOr<std::vector<Generation>> results =
        engine.Generate(std::span(requests).subspan(first, n), chunk);
    REQUIRE(results.ok());
    for (Generation& result : *results) trace.emplace_back(result.tokens, result.digests);
  }
  REQUIRE(engine.pool().held() == 0);
  return trace;
}

std::string Text(const std::vector<uint64_t>& digests) {
  std::string text;
  for (const uint64_t digest : digests) text += absl::StrFormat("%016x ", digest);
  return text;
}

}  // namespace

TEST_CASE("logits digests do not depend on chunk, batch, pages, threads or ISA path") {
  const std::string model = GENERATE(kTinyModel, kTinyMoeModel);
  const std::vector<Isa> paths = Paths();
  const std::vector<LocalRequest> requests = MakeRequests(500);
  const Trace reference = Run(*MakeEngine(model, {paths[0], 1, 64}), requests, 1, 0);
  const int chunks[] = {0, 1, 7, 64, 512}, batches[] = {1, 2, 17, 32}, pages[] = {16, 32, 64};
  for (const Isa isa : paths) {
    for (int t = 0; t < 2; ++t) {
      for (int p = 0; p < 3; ++p) {
        const auto engine = MakeEngine(model, {isa, t + 1, pages[p]});
        for (int c = 0; c < 5; ++c) {
          for (int b = 0; b < 4; ++b) {
            // Like the black squares of a chessboard: half the work, and all pairs still meet.
            if ((t + p + c + b) % 2 != 0) continue;
            INFO(model << " " << IsaName(isa) << " threads " << t + 1 << " page " << pages[p]
                       << " chunk " << chunks[c] << " batch " << batches[b]);
            CHECK((Run(*engine, requests, batches[b], chunks[c]) == reference));
          }
        }
      }
    }
  }
}

TEST_CASE("nor do they in the other families") {
  const std::string family = GENERATE(from_range(kFamilies));
  const std::vector<Isa> paths = Paths();
  const auto first = MakeEngine(ModelOf(family), {paths[0], 1, 64});
  const std::vector<LocalRequest> requests = MakeRequests(VocabOf(*first));
  const Trace reference = Run(*first, requests, 1, 0);
  for (size_t p = 0; p < paths.size(); ++p) {
    const Setting setting{paths[p], 2, p % 2 == 0 ? 16 : 32};
    const auto engine = MakeEngine(ModelOf(family), setting);
    INFO(family << " " << IsaName(paths[p]));
    CHECK((Run(*engine, requests, 17, 7) == reference));
    CHECK((Run(*engine, requests, 32, 64) == reference));
  }
}

TEST_CASE("nor do they with KV in int8") {
  const std::string name = GENERATE("tiny", "qwen3", "mistral_window", "deepseek_v2_lite");
  const std::vector<Isa> paths = Paths();
  const auto engine_of = [&](Isa isa, int threads, int page_tokens) {
    return MakeEngine(ModelOf(name), {isa, threads, page_tokens, "int8"});
  };
  const auto first = engine_of(paths[0], 1, 64);
  CHECK(first->backend().numerics_id() == "v1/cpu-x86/bf16/kv-int8/l2");
  const std::vector<LocalRequest> requests = MakeRequests(VocabOf(*first));
  const Trace reference = Run(*first, requests, 1, 0);
  CHECK(Run(*MakeEngine(ModelOf(name), {paths[0], 1, 64}), requests, 1, 0) != reference);
  const int pages[] = {16, 32, 64}, chunks[] = {1, 7, 64, 0}, batches[] = {17, 32, 2, 1};
  for (size_t p = 0; p < paths.size(); ++p)
    for (int i = 0; i < 4; ++i) {
      INFO(name << " " << IsaName(paths[p]) << " chunk " << chunks[i]);
      const auto engine = engine_of(paths[p], 1 + i % 2, pages[(p + i) % 3]);
      CHECK((Run(*engine, requests, batches[i], chunks[i]) == reference));
    }
}

TEST_CASE("nor do they with integer weights") {
  const auto [dtype, group] =
      GENERATE(table<std::string, int>({{"int8", 128}, {"int4", 128}, {"int4", 64}, {"int4", 32}}));
  const std::string model = GENERATE(kTinyModel, kTinyMoeModel);
  const std::vector<Isa> paths = Paths();
  const std::vector<LocalRequest> requests = MakeRequests(500);
  const Trace reference = Run(*MakeEngine(model, {paths[0], 1, 64}, dtype, group), requests, 1, 0);
  for (size_t p = 0; p < paths.size(); ++p) {
    const Setting setting{paths[p], 2, p % 2 == 0 ? 16 : 32};
    const auto engine = MakeEngine(model, setting, dtype, group);
    INFO(model << " " << dtype << " " << group << " " << IsaName(paths[p]));
    CHECK((Run(*engine, requests, 2, 1) == reference));
    CHECK((Run(*engine, requests, 17, 7) == reference));
    CHECK((Run(*engine, requests, 32, 64) == reference));
    CHECK((Run(*engine, requests, 32, 512) == reference));
  }
}

TEST_CASE("a token's logits are the same decoded or read as prompt") {
  const std::string name = GENERATE(from_range(kGoldenModels));
  const std::string model = ModelOf(name);
  const std::string dtype = GENERATE("bf16", "fp32", "int8 KV");
  INFO(model << " " << dtype);
  const Setting setting{Paths().back(), 2, 16, dtype == "int8 KV" ? "int8" : "bf16"};
  const auto engine = MakeEngine(model, setting, dtype == "fp32" ? "fp32" : "bf16");
  LocalRequest request = MakeRequests(VocabOf(*engine))[5];
  request.max_tokens = 48;
  const absl::StatusOr<Generation> decoded = engine->Generate(request);
  REQUIRE(decoded.ok());
  uint64_t digest = 0;
  for (int i = 0; i < 48; ++i) {
    LocalRequest again = request;
    again.prompt.insert(again.prompt.end(), decoded->tokens.begin(), decoded->tokens.begin() + i);
    again.max_tokens = 1;
    const absl::StatusOr<Generation> prefilled = engine->Generate(again, i % 2 == 0 ? 0 : 5);
    REQUIRE(prefilled.ok());
    digest = LogitsDigest(prefilled->last_logits, digest);
    CHECK(digest == decoded->digests[i]);
    CHECK(prefilled->tokens[0] == decoded->tokens[i]);
  }
}

TEST_CASE("layers may be run in any cut") {
  const std::string dtype = GENERATE("bf16", "fp32");
  EngineOptions options;
  options.model = kDemoModel;
  options.dtype = dtype;
  const std::unique_ptr<Backend> backend = LoadOrDie(options);
  SequenceRunner runner(*backend, 256);
  const std::vector<int32_t> tokens = MakeRequests(500)[3].prompt;
  const std::vector<int32_t> wanted{0, static_cast<int32_t>(tokens.size()) - 1};
  const std::vector<float> whole = runner.Feed(tokens, wanted);
  for (const int cut : {1, 2, 3}) {
    runner.Restart();
    CHECK(runner.Feed(tokens, wanted, cut) == whole);
  }
}

TEST_CASE("golden digests") {
  const Golden golden = GENERATE(from_range(kGoldens));
  const boost::json::value stored = boost::json::parse(ReadAll(golden.path()));
  CHECK(stored.at("numerics_id").as_string() == golden.numerics_id());
  for (const Isa isa : Paths()) {
    for (const std::string& name : golden.models) {
      INFO(name << " " << golden.numerics_id() << " " << IsaName(isa));
      const auto engine = MakeEngine(ModelOf(name), {isa, 2, 64, golden.kv_dtype}, golden.dtype);
      CHECK(engine->backend().numerics_id() == golden.numerics_id());
      const boost::json::array& expected = stored.at(name).as_array();
      REQUIRE(expected.size() == 8);
      const std::vector<LocalRequest> requests = MakeRequests(VocabOf(*engine));
      for (size_t i = 0; i < expected.size(); ++i) {
        const absl::StatusOr<Generation> result = engine->Generate(requests[i]);
        REQUIRE(result.ok());
        CHECK(Text(result->digests) == expected[i].as_string().c_str());
      }
    }
  }
}

// Rewrites the files; what it changes is reviewed like code: invariance_test "[update-golden]".
TEST_CASE("update the golden digests", "[.][update-golden]") {
  const Golden golden = GENERATE(from_range(kGoldens));
  std::string stored = "{\"numerics_id\":\"" + golden.numerics_id() + "\"";
  for (const std::string& name : golden.models) {
    const auto engine =
        MakeEngine(ModelOf(name), {Paths().front(), 1, 64, golden.kv_dtype}, golden.dtype);
    boost::json::array digests;
    const std::vector<LocalRequest> requests = MakeRequests(VocabOf(*engine));
    for (size_t i = 0; i < 8; ++i) {
      const absl::StatusOr<Generation> result = engine->Generate(requests[i]);
      REQUIRE(result.ok());
      digests.emplace_back(Text(result->digests));
    }
    stored += ",\n\"" + name + "\":" + boost::json::serialize(digests);
  }
  std::ofstream(golden.path()) << stored << "}\n";
}

}  // namespace baton
