// Logits, tokens and KV against Hugging Face transformers (tests/data/models/README.md).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "engine/load_backend.h"
#include "engine/sampling/sampler.h"
#include "tests/engine/checkpoint/checkpoint_writer.h"
#include "tests/engine/oracle_comparison.h"
#include "tests/engine/served_model.h"
#include "tests/support/oracle_logprobs.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

std::vector<std::string> AllCases() {
  std::vector<std::string> cases = OracleCases();
  for (const std::string& name : GgufCases()) cases.push_back(name);
  return cases;
}

double KvBound(const std::string& dtype) { return dtype == "fp32" ? 1e-5 : 2e-2; }

// The reference stores the two elements of a RoPE pair side by side, Baton one half behind the
// other.
void CompareLatents(const OracleCase& oracle, SequenceRunner& runner, const std::string& dtype) {
  const std::vector<float> latents = oracle.Floats("debug.layer0.latent");
  const std::vector<float> rotated = oracle.Floats("debug.layer0.k_rope");
  const size_t n = 17, rank = latents.size() / n, width = rotated.size() / n;
  for (size_t position = 0; position < n; ++position) {
    const std::vector<float> key = runner.Key(0, 0, static_cast<int>(position));
    REQUIRE(key.size() == rank + width);
    std::vector<float> pairs(width);
    for (size_t i = 0; i < width; ++i) pairs[i] = key[rank + i % 2 * (width / 2) + i / 2];
    CHECK(RelativeError(key.data(), &latents[position * rank], rank) < KvBound(dtype));
    CHECK(RelativeError(pairs.data(), &rotated[position * width], width) < KvBound(dtype));
  }
}

}  // namespace

TEST_CASE("fp32 logits and greedy tokens equal the reference") {
  const std::string name = GENERATE(from_range(AllCases()));
  INFO(name);
  const OracleCase oracle = LoadOracleCase(name);
  ServedModel served(OptionsFor(oracle.model, "fp32"));
  int compared = 0;
  double worst = 0;
  for (const OraclePrompt& prompt : oracle.prompts) {
    INFO(prompt.name);
    SequenceRunner& runner = served.For(prompt);
    for (const double error : RowErrors(runner, prompt, served.backend().model().vocab)) {
      CHECK(error <= prompt.bound_fp32);
      worst = std::max(worst, error / prompt.bound_fp32);
    }
    compared += CompareGreedy(runner, prompt, prompt.clear_margin_fp32);
  }
  CHECK(compared > 150);
  std::printf("%s fp32: worst row %.2f of its bound, %d greedy steps\n", name.c_str(), worst,
              compared);
}

TEST_CASE("scored rows have the bits of rows with logits, and logprobs are the reference's") {
  const std::string name = GENERATE(from_range(AllCases()));
  const std::string dtype = GENERATE("fp32", "bf16");
  INFO(name << " " << dtype);
  const OracleCase oracle = LoadOracleCase(name);
  ServedModel served(OptionsFor(oracle.model, dtype));
  Sampler sampler;
  int compared = 0;
  double worst = 0;
  for (const OraclePrompt& prompt : oracle.prompts) {
    INFO(prompt.name);
    SequenceRunner& runner = served.For(prompt);
    const auto vocab = static_cast<size_t>(served.backend().model().vocab);
    const int n = static_cast<int>(prompt.tokens.size());
    runner.Restart(n);
    const std::vector<float> logits = runner.Feed(prompt.tokens, prompt.positions);
    runner.Restart(n);
    const std::vector<int32_t> wanted =
        n > 40 ? std::vector<int32_t>{0, 17, 18, n - 1} : std::vector<int32_t>{n - 1};
    const std::vector<float> all = runner.FeedScored(prompt.tokens, wanted);
    for (size_t i = 0; i < prompt.positions.size(); ++i) {
      const auto at = static_cast<size_t>(prompt.positions[i]);
      REQUIRE(std::memcmp(&logits[i * vocab], &all[at * vocab], vocab * sizeof(float)) == 0);
      if (dtype != "fp32" || at + 1 == prompt.tokens.size()) continue;
      PromptLogprob scored;
      sampler.ScoreRows(std::span(all).subspan(at * vocab, vocab),
                        std::span(prompt.tokens).subspan(at + 1, 1), 5, vocab, {&scored, 1});
      const float* const expected = &prompt.logits[i * vocab];
      const double bound = LogprobBound(expected, vocab, prompt.bound_fp32);
      const auto error = [&](const TokenLogprob& told) {
        return std::abs(double{told.logprob} - LogprobOf(expected, vocab, told.token));
      };
      worst = std::max(worst, error({prompt.tokens[at + 1], scored.logprob}) / bound);
      for (const TokenLogprob& told : scored.top) worst = std::max(worst, error(told) / bound);
      CHECK(worst <= 1);
      ++compared;
    }
  }
  CHECK((dtype == "bf16" || compared > 10));
  if (dtype == "fp32")
    std::printf("%s logprobs: worst %.2f of its bound, %d rows\n", name.c_str(), worst, compared);
}

TEST_CASE("bf16 logits and greedy tokens are within the reference's own bf16 error") {
  const std::string name = GENERATE(from_range(AllCases()));
  const OracleCase oracle = LoadOracleCase(name);
  ServedModel served(OptionsFor(oracle.model, "bf16"));
  CompareInBf16(name, oracle, served);
}

TEST_CASE("keys after rope and values land where KvLayout says") {
  const std::string name = GENERATE(from_range(AllCases()));
  const std::string dtype = GENERATE("fp32", "bf16");
  const int page_tokens = GENERATE(16, 64);
  INFO(name << " " << dtype << " pages of " << page_tokens);
  const OracleCase oracle = LoadOracleCase(name);
  EngineOptions options = OptionsFor(oracle.model, dtype);
  options.page_tokens = page_tokens;
  const std::unique_ptr<Backend> backend = LoadOrDie(options);
  const auto prompt = std::find_if(oracle.prompts.begin(), oracle.prompts.end(),
                                   [](const OraclePrompt& p) { return p.name == "p17"; });
  SequenceRunner runner(*backend, kMaxTokens);
  runner.Feed(prompt->tokens, {});
  if (backend->model().latent.rank > 0) return CompareLatents(oracle, runner, dtype);
  const std::vector<float> keys = oracle.Floats("debug.layer0.k");
  const std::vector<float> values = oracle.Floats("debug.layer0.v");
  const int d = backend->model().head_dim, n = static_cast<int>(prompt->tokens.size());
  const double bound = KvBound(dtype);
  for (int head = 0; head < backend->model().n_kv_heads; ++head) {
    for (int position = 0; position < n; ++position) {
      const int at = (head * n + position) * d;
      CHECK(RelativeError(runner.Key(0, head, position).data(), &keys[at], d) < bound);
      CHECK(RelativeError(runner.Value(0, head, position).data(), &values[at], d) < bound);
    }
  }
}

TEST_CASE("both spellings of a config are one model") {
  const std::string name = GENERATE(from_range(OracleCases()));
  INFO(name);
  const OracleCase oracle = LoadOracleCase(name);
  const TempFolder old_spelling;
  old_spelling.Link("config.json", oracle.folder + "/config.v4.json");
  for (const auto& file : std::filesystem::directory_iterator(oracle.folder)) {
    const std::string name_of_file = file.path().filename();
    if (name_of_file.starts_with("model")) old_spelling.Link(name_of_file, file.path());
  }
  ServedModel now(OptionsFor(oracle.folder, "bf16")), then(OptionsFor(old_spelling.path(), "bf16"));
  const OraclePrompt& prompt = oracle.prompts.back();
  CHECK(now.For(prompt).FeedLast(prompt.tokens) == then.For(prompt).FeedLast(prompt.tokens));
  CHECK(now.backend().model_fingerprint() == then.backend().model_fingerprint());
  CHECK(now.backend().model().eos_tokens == then.backend().model().eos_tokens);
}

TEST_CASE("the text part of a model that also sees images is the text model") {
  const OracleCase oracle = LoadOracleCase("gemma3");
  const SafetensorsFile file = *SafetensorsFile::Open(oracle.folder + "/model.safetensors");
  FileTensors tensors;
  for (const auto& [name, view] : file.tensors()) {
    tensors["language_model." + name] = {
        view.dtype, view.shape,
        std::string(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size())};
  }
  tensors["vision_tower.vision_model.post_layernorm.weight"] = Fp32Tensor({2}, {1, 1});
  const TempFolder folder;
  WriteCheckpoint(folder,
                  R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
                      "torch_dtype": "bfloat16", "text_config": )" +
                      ReadAll(oracle.folder + "/config.v4.json") + "}",
                  tensors);
  ServedModel alone(OptionsFor(oracle.folder, "bf16")), part(OptionsFor(folder.path(), "bf16"));
  const OraclePrompt& prompt = oracle.prompts.back();
  CHECK(alone.For(prompt).FeedLast(prompt.tokens) == part.For(prompt).FeedLast(prompt.tokens));
}

TEST_CASE("models are equal for any served context, unless their frequencies depend on it") {
  const auto fingerprint = [](const std::string& name, int max_context) {
    EngineOptions options = OptionsFor(std::string(BATON_TEST_DATA) + "/models/" + name, "bf16");
    options.max_context = max_context;
    return LoadOrDie(options)->model_fingerprint();
  };
  CHECK(fingerprint("llama_yarn", 100) == fingerprint("llama_yarn", 1000));
  CHECK(fingerprint("llama_dynamic", 0) == fingerprint("llama_dynamic", 100));
  CHECK(fingerprint("llama_dynamic", 0) != fingerprint("llama_dynamic", 200));
  CHECK(fingerprint("llama_dynamic", 200) != fingerprint("llama_dynamic", 201));
  EngineOptions beyond = OptionsFor(std::string(BATON_TEST_DATA) + "/models/llama_yarn", "bf16");
  beyond.max_context = 1025;
  CHECK_THAT(std::string(LoadBackend(beyond).status().message()),
             Catch::Matchers::Contains("llama_yarn has 1024 positions"));
}

}  // namespace baton
