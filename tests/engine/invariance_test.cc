// A request's logits depend on model, tokens and position alone, in every family and every type of
// weights and KV: not on chunk, batch, page size, threads, ISA path, layer cuts, or whether a token
// came as prompt or was decoded. Golden digests hold machines of every kind to the same bits.
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <set>

#include "tests/engine/invariance_runs.h"
#include "tests/engine/sequence_runner.h"
#include "tests/support/oracle_case.h"

namespace baton {
namespace {

// A type of weights and KV: its golden digests, and the models with such digests.
struct Golden {
  Precision precision;
  std::string id;  // id of the weights' type
  std::vector<std::string> models;
  std::string path() const {
    return BATON_TEST_DATA +
           ("/golden/cpu-x86" + (precision.dtype == "bf16" ? "" : "-" + id) +
            (precision.kv_dtype == "bf16" ? "" : "-kv-" + precision.kv_dtype) + ".json");
  }
  std::string numerics_id() const {
    return "v1/cpu-x86/" + id + "/kv-" + precision.kv_dtype + "/l2";
  }
};

// The families that differ from Llama, each one of the reference models.
const std::vector<std::string> kFamilies{
    "qwen2",      "qwen3",     "mistral_window",   "mixtral",     "qwen2_moe",
    "qwen3_moe",  "falcon7b",  "falcon40b",        "gemma2",      "gemma3",
    "phi3_short", "phi3_long", "deepseek_v2_lite", "deepseek_v2", "deepseek_v3"};
const std::vector<std::string> kGoldenModels{
    "tiny",    "tiny-moe",   "demo",      "qwen2",           "qwen3",     "mistral_window",
    "mixtral", "qwen2_moe",  "qwen3_moe", "falcon7b",        "falcon40b", "gemma2",
    "gemma3",  "phi3_short", "phi3_long", "deepseek_v2_lite"};
const std::vector<std::string> kIntegerModels{"tiny", "tiny-moe", "demo", "qwen2"};
// Models that run on emulated instructions too; they have windows, soft caps, experts and latents.
const std::set<std::string> kEmulatedModels{"tiny", "tiny-moe", "gemma2", "deepseek_v2_lite"};
const std::vector<Golden> kGoldens{
    {{"bf16"}, "bf16", kGoldenModels},
    {{"int8"}, "int8", kIntegerModels},
    {{"int4"}, "int4g128", kIntegerModels},
    {{"bf16", "int8"}, "bf16", {"tiny", "demo", "gemma2", "mistral_window", "deepseek_v2_lite"}}};

}  // namespace

TEST_CASE("digests do not depend on chunk, batch, pages, threads or ISA path in any family") {
  const std::string family = GENERATE(from_range(kFamilies));
  const Precision precision =
      GENERATE(values<Precision>({{"bf16"}, {"bf16", "int8"}, {"int8"}, {"int4", "int8", 64}}));
  INFO(family << " " << precision.Name());
  const std::vector<Isa> paths = Paths();
  const auto first = MakeEngine(ModelOf(family), {paths[0], 1, 64}, precision);
  const std::vector<LocalRequest> requests = MakeRequests(VocabOf(*first));
  const Trace reference = Run(*first, requests, 1, 0);
  for (size_t p = 0; p < paths.size(); ++p) {
    const Setting setting{paths[p], 2, p % 2 == 0 ? 16 : 32};
    const auto engine = MakeEngine(ModelOf(family), setting, precision);
    INFO(IsaName(paths[p]));
    CHECK((Run(*engine, requests, 17, 7) == reference));
    CHECK((Run(*engine, requests, 32, 64) == reference));
  }
}

TEST_CASE("types of weights and KV have bits of their own") {
  std::vector<std::string> ids;
  std::vector<Trace> traces;
  for (const Golden& golden : kGoldens) {
    const auto engine = MakeEngine(ModelOf("tiny"), {Paths()[0], 1, 64}, golden.precision);
    ids.push_back(engine->backend().numerics_id());
    CHECK(ids.back() == golden.numerics_id());
    traces.push_back(Run(*engine, MakeRequests(500), 32, 0));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t j = 0; j < i; ++j) CHECK((ids[i] != ids[j] && traces[i] != traces[j]));
  }
}

TEST_CASE("a token's logits are the same decoded or read as prompt") {
  const std::string name = GENERATE(from_range(kGoldenModels));
  const Precision precision = GENERATE(values<Precision>(
      {{"bf16"}, {"fp32"}, {"bf16", "int8"}, {"int8"}, {"int4"}, {"int4", "int8", 32}}));
  INFO(name << " " << precision.Name());
  const auto engine = MakeEngine(ModelOf(name), {Paths().back(), 2, 16}, precision);
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
  options.model = ModelOf("demo");
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
  const auto check = [&](const std::string& model, const std::string& path, LocalEngine& engine) {
    INFO(model << " " << golden.numerics_id() << " " << path);
    CHECK(engine.backend().numerics_id() == golden.numerics_id());
    const boost::json::array& expected = stored.at(model).as_array();
    REQUIRE(expected.size() == 8);
    const std::vector<LocalRequest> requests = MakeRequests(VocabOf(engine));
    for (size_t i = 0; i < expected.size(); ++i) {
      const absl::StatusOr<Generation> result = engine.Generate(requests[i]);
      REQUIRE(result.ok());
      CHECK(Text(result->digests) == expected[i].as_string().c_str());
    }
  };
  for (const std::string& name : golden.models) {
    for (const Isa isa : Paths()) {
      check(name, std::string(IsaName(isa)),
            *MakeEngine(ModelOf(name), {isa, 2, 64}, golden.precision));
    }
    if (!kEmulatedModels.contains(name)) continue;
    for (KernelPath& path : EmulatedPaths()) {
      check(name, path.name,
            *MakeEngine(ModelOf(name), {Isa::kAvx2, 2, 64}, golden.precision,
                        std::move(path.kernels)));
    }
  }
}

// Rewrites the files, whose changes are reviewed like code: invariance_test "[update-golden]".
TEST_CASE("update the golden digests", "[.][update-golden]") {
  const Golden golden = GENERATE(from_range(kGoldens));
  std::string stored = "{\"numerics_id\":\"" + golden.numerics_id() + "\"";
  for (const std::string& name : golden.models) {
    const auto engine = MakeEngine(ModelOf(name), {Paths().front(), 1, 64}, golden.precision);
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
