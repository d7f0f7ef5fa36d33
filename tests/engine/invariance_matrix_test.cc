// The whole matrix of ways to cut the work, in every type of weights and KV, and models of random
// shapes: a request's digests are the same in all of them, and equal the committed ones.
#include <catch2/catch.hpp>
#include <random>

#include "absl/strings/str_format.h"
#include "tests/engine/invariance_runs.h"
#include "tests/support/oracle_case.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

constexpr int kChunks[] = {1, 7, 64, 333, 512, 0};  // 0: the whole prompt
constexpr int kBatches[] = {1, 2, 17, 64};
constexpr int kPages[] = {16, 32, 64};

// Each precision with the file of its golden digests, made from single requests.
const std::vector<std::pair<Precision, std::string>> kPrecisions = {
    {{"bf16"}, "cpu-x86.json"},
    {{"int8"}, "cpu-x86-int8.json"},
    {{"int4"}, "cpu-x86-int4g128.json"},
    {{"bf16", "int8"}, "cpu-x86-kv-int8.json"}};

// Returns the digests of single requests, which must equal the committed ones.
Trace Reference(const std::string& name, const Precision& precision, const std::string& file,
                std::span<const LocalRequest> requests) {
  const Trace reference =
      Run(*MakeEngine(ModelOf(name), {Paths()[0], 1, 64}, precision), requests, 1, 0);
  const boost::json::value golden =
      boost::json::parse(ReadAll(std::string(BATON_TEST_DATA) + "/golden/" + file));
  if (const boost::json::value* stored = golden.as_object().if_contains(name)) {
    for (size_t i = 0; i < stored->as_array().size(); ++i) {
      CHECK(Text(reference[i].second) == stored->as_array()[i].as_string().c_str());
    }
  }
  return reference;
}

// Checks chunk, batch, page size and threads in every combination, or in each `fraction`-th; with 2
// and 6, any two of them still meet in all their values.
void CheckMatrix(const std::string& name, int fraction) {
  const auto [precision, file] = GENERATE(from_range(kPrecisions));
  const Isa isa = GENERATE(from_range(Paths()));
  const std::vector<LocalRequest> requests = MakeRequests(500, 64);
  const Trace reference = Reference(name, precision, file, requests);
  int runs = 0;
  for (int t = 0; t < 2; ++t) {
    for (int p = 0; p < 3; ++p) {
      const auto engine = MakeEngine(ModelOf(name), {isa, t + 1, kPages[p]}, precision);
      for (int c = 0; c < 6; ++c) {
        for (int b = 0; b < 4; ++b) {
          if ((c + b + 3 * t + 2 * p) % fraction != 0) continue;
          INFO(name << " " << precision.Name() << " " << IsaName(isa) << " threads " << t + 1
                    << " page " << kPages[p] << " chunk " << kChunks[c] << " batch "
                    << kBatches[b]);
          CHECK((Run(*engine, requests, kBatches[b], kChunks[c]) == reference));
          ++runs;
        }
      }
    }
  }
  CHECK(runs == 144 / fraction);
}

// ---- models of random shapes ----

int Between(std::mt19937& random, int min, int max) {
  return min + static_cast<int>(random() % static_cast<uint32_t>(max - min + 1));
}

// Returns the fields of a family beyond Llama's.
std::string FieldsOf(const std::string& architecture, std::mt19937& random) {
  if (architecture == "LlamaForCausalLM") {
    return absl::StrFormat(R"("attention_bias": %s, "mlp_bias": %s)",
                           random() % 2 == 0 ? "true" : "false",
                           random() % 2 == 0 ? "true" : "false");
  }
  if (architecture == "MistralForCausalLM") {
    return absl::StrFormat(R"("sliding_window": %d)", Between(random, 1, 600));
  }
  if (architecture == "Gemma2ForCausalLM") {
    return absl::StrFormat(R"("sliding_window": %d, "query_pre_attn_scalar": %d)",
                           Between(random, 1, 200), Between(random, 8, 64));
  }
  if (architecture == "Qwen3MoeForCausalLM") {
    const int experts = Between(random, 1, 40);
    return absl::StrFormat(
        R"("num_experts": %d, "num_experts_per_tok": %d, "moe_intermediate_size": %d,
           "norm_topk_prob": %s, "decoder_sparse_step": %d)",
        experts, Between(random, 1, std::min(experts, 6)), Between(random, 1, 90),
        random() % 2 == 0 ? "true" : "false", Between(random, 1, 2));
  }
  return R"("hidden_dropout": 0)";
}

std::string RandomConfig(std::mt19937& random) {
  const std::string architecture = std::vector<std::string>{
      "LlamaForCausalLM", "MistralForCausalLM", "Gemma2ForCausalLM",
      "Qwen2ForCausalLM", "Qwen3ForCausalLM",   "Qwen3MoeForCausalLM"}[random() % 6];
  const int kv_heads = Between(random, 1, 4);
  return absl::StrFormat(
      R"({"architectures": ["%s"], "hidden_size": %d, "num_hidden_layers": %d,
          "num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d,
          "intermediate_size": %d, "vocab_size": %d, "max_position_embeddings": 1024,
          "tie_word_embeddings": %s, %s})",
      architecture, Between(random, 3, 180), Between(random, 1, 4),
      kv_heads * Between(random, 1, 5), kv_heads, 16 * Between(random, 1, 9),
      Between(random, 1, 300), Between(random, 20, 700), random() % 2 == 0 ? "true" : "false",
      FieldsOf(architecture, random));
}

std::vector<LocalRequest> RandomRequests(std::mt19937& random, int vocab) {
  std::vector<LocalRequest> requests(8);
  for (LocalRequest& request : requests) {
    const int length =
        &request == &requests[3] ? Between(random, 400, 800) : Between(random, 1, 150);
    for (int i = 0; i < length; ++i) {
      request.prompt.push_back(Between(random, 0, vocab - 1));
    }
    request.max_tokens = Between(random, 1, 6);
    request.ignore_eos = true;
  }
  return requests;
}

void CheckRandomModels(uint32_t seed) {
  std::mt19937 random(seed);
  const std::vector<Precision> precisions = {
      {"bf16"}, {"int8"}, {"int4", "bf16", 32}, {"int4", "int8", 64}, {"int4"}, {"bf16", "int8"}};
  const std::vector<Isa> paths = Paths();
  const TempFolder folder;
  for (int i = 0; i < 12; ++i) {
    const std::string config = RandomConfig(random);
    folder.Write("config.json", config);
    const std::string model = "random:" + folder.file("config.json");
    const Precision precision = precisions[i % precisions.size()];
    INFO("seed " << seed << ", model " << i << ", " << precision.Name() << ": " << config);
    const auto first = MakeEngine(model, {paths[0], 1, 64}, precision);
    const std::vector<LocalRequest> requests =
        RandomRequests(random, first->backend().model().vocab);
    const Trace reference = Run(*first, requests, 1, 0);
    for (const Isa isa : paths) {
      const Setting setting{isa, Between(random, 1, 3), kPages[random() % 3]};
      const auto engine = MakeEngine(model, setting, precision);
      for (int run = 0; run < 2; ++run) {
        const int batch = Between(random, 1, 8), chunk = Between(random, 1, 400);
        INFO(IsaName(isa) << " threads " << setting.threads << " page " << setting.page_tokens
                          << " chunk " << chunk << " batch " << batch);
        CHECK((Run(*engine, requests, batch, chunk) == reference));
      }
    }
  }
}

}  // namespace

TEST_CASE("the digests of every way to cut the work") { CheckMatrix("tiny", 6); }

TEST_CASE("the digests of every way to cut the work, with experts") { CheckMatrix("tiny-moe", 6); }

// Runs 144 ways, in each type, on each path: invariance_test "[full]".
TEST_CASE("the digests of every way to cut the work, none left out", "[.][full]") {
  CheckMatrix(GENERATE("tiny", "tiny-moe"), 1);
}

TEST_CASE("models of random shapes") { CheckRandomModels(1); }

// Runs with invariance_test "[fuzz]".
TEST_CASE("models of random shapes, others in every run", "[.][fuzz]") {
  CheckRandomModels(static_cast<uint32_t>(std::random_device()()));
}

}  // namespace baton
