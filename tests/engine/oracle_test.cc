// Logits, tokens and KV against Hugging Face transformers (tests/data/models/README.md).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "engine/oracle_case.h"
#include "engine/sequence_runner.h"
#include "engine/temp_folder.h"

namespace baton {
namespace {

constexpr int kMostTokens = 704;  // the longest prompt and its continuation

std::vector<std::string> Cases() {
  return {"llama2",           "llama32",       "llama_bias_fp16", "llama_linear_fp32",
          "llama_yarn",       "llama_dynamic", "qwen2",           "qwen3",
          "mistral_window",   "mixtral",       "qwen2_moe",       "qwen3_moe",
          "deepseek_v2_lite", "falcon7b",      "falcon40b",       "gemma",
          "gemma2",           "gemma3",        "phi3_short",      "phi3_long"};
}

EngineOptions OptionsFor(const std::string& folder, const std::string& dtype) {
  EngineOptions options;
  options.model = folder;
  options.dtype = dtype;
  options.threads = 2;
  options.max_step_tokens = kMostTokens;
  return options;
}

// A model served with the context its prompts were computed with: dynamic RoPE has the frequencies
// of that context.
class ServedModel {
 public:
  explicit ServedModel(EngineOptions options) : options_(std::move(options)) {}

  SequenceRunner& For(const OraclePrompt& prompt) {
    const int context = prompt.greedy.empty() ? static_cast<int>(prompt.tokens.size()) : 0;
    if (backend_ == nullptr || context != options_.max_context) {
      options_.max_context = context;
      runner_.reset();
      backend_ = LoadOrDie(options_);
      runner_ = std::make_unique<SequenceRunner>(*backend_, kMostTokens);
    }
    return *runner_;
  }
  const Backend& backend() const { return *backend_; }

 private:
  EngineOptions options_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<SequenceRunner> runner_;
};

// Relative error of every stored row of a prompt, in the order of its positions.
std::vector<double> RowErrors(SequenceRunner& runner, const OraclePrompt& prompt, int vocab) {
  runner.Restart(static_cast<int>(prompt.tokens.size()));
  const std::vector<float> logits = runner.Feed(prompt.tokens, prompt.positions);
  std::vector<double> errors;
  for (size_t row = 0; row < prompt.positions.size(); ++row) {
    const size_t at = row * vocab;
    errors.push_back(RelativeError(&logits[at], &prompt.logits[at], vocab));
  }
  return errors;
}

// Feeds the expected tokens one by one; the argmax must be the expected one wherever the margin
// says that this precision can tell. Returns the number of steps compared. Where the reference goes
// over to longrope's long factors, a sequence of that range begins anew, as it did.
int CompareGreedy(SequenceRunner& runner, const OraclePrompt& prompt, double clear_margin) {
  if (prompt.greedy.empty()) return 0;
  const int n_prompt = static_cast<int>(prompt.tokens.size());
  const int most_tokens = n_prompt + static_cast<int>(prompt.greedy.size());
  runner.Restart(prompt.rope_switch_step < 0 ? most_tokens : n_prompt);
  std::vector<float> logits = runner.FeedLast(prompt.tokens);
  int compared = 0;
  for (size_t i = 0; i < prompt.greedy.size(); ++i) {
    if (static_cast<int>(i) == prompt.rope_switch_step) {
      std::vector<int32_t> tokens = prompt.tokens;
      tokens.insert(tokens.end(), prompt.greedy.begin(), prompt.greedy.begin() + i);
      runner.Restart(most_tokens);
      logits = runner.FeedLast(tokens);
    }
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    if (prompt.margin[i] >= clear_margin) {
      INFO(prompt.name << " step " << i);
      CHECK(best == prompt.greedy[i]);
      ++compared;
    }
    if (static_cast<int>(i) + 1 == prompt.rope_switch_step) continue;
    logits = runner.FeedLast(std::span(&prompt.greedy[i], 1));
  }
  return compared;
}

double KvBound(const std::string& dtype) { return dtype == "fp32" ? 1e-5 : 2e-2; }

// The reference keeps the two of a pair of RoPE side by side, we one half behind the other.
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
  const std::string name = GENERATE(from_range(Cases()));
  INFO(name);
  const OracleCase oracle = LoadOracleCase(name);
  ServedModel served(OptionsFor(oracle.folder, "fp32"));
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

TEST_CASE("bf16 logits and greedy tokens are within the reference's own bf16 error") {
  const std::string name = GENERATE(from_range(Cases()));
  INFO(name);
  const OracleCase oracle = LoadOracleCase(name);
  ServedModel served(OptionsFor(oracle.folder, "bf16"));
  std::vector<double> all;
  int compared = 0;
  double worst = 0;
  for (const OraclePrompt& prompt : oracle.prompts) {
    INFO(prompt.name);
    SequenceRunner& runner = served.For(prompt);
    const std::vector<double> errors = RowErrors(runner, prompt, served.backend().model().vocab);
    CHECK(errors.back() <= prompt.bound_bf16);
    worst = std::max(worst, errors.back() / prompt.bound_bf16);
    all.insert(all.end(), errors.begin(), errors.end());
    compared += CompareGreedy(runner, prompt, prompt.clear_margin_bf16);
  }
  std::sort(all.begin(), all.end());
  const double median = all[all.size() / 2];
  CHECK(median <= oracle.bound_bf16_median);
  CHECK(compared > 60);  // gemma2: soft caps keep margins small
  std::printf("%s bf16 (%s): worst last row %.2f of its bound, median %.2f, %d greedy steps\n",
              name.c_str(), served.backend().isa().c_str(), worst,
              median / oracle.bound_bf16_median, compared);
}

// KL divergence of softmax(b) from softmax(a), of n logits.
double Divergence(const float* a, const float* b, int n) {
  const auto log_sum = [n](const float* x) {
    const double most = double{*std::max_element(x, x + n)};
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += std::exp(double{x[i]} - most);
    return most + std::log(sum);
  };
  const double log_a = log_sum(a), log_b = log_sum(b);
  double divergence = 0;
  for (int i = 0; i < n; ++i) {
    const double of_a = double{a[i]} - log_a, of_b = double{b[i]} - log_b;
    divergence += std::exp(of_a) * (of_a - of_b);
  }
  return divergence;
}

TEST_CASE("KV in int8 moves the logits little more than bf16 does") {
  const std::string name = GENERATE(from_range(Cases()));
  INFO(name);
  const OracleCase oracle = LoadOracleCase(name);
  std::vector<double> divergences[2], errors[2];
  int agreeing = 0, rows = 0;
  for (int int8 : {0, 1}) {
    EngineOptions options = OptionsFor(oracle.folder, "bf16");
    options.kv_dtype = int8 == 1 ? "int8" : "bf16";
    ServedModel served(options);
    for (const OraclePrompt& prompt : oracle.prompts) {
      SequenceRunner& runner = served.For(prompt);
      runner.Restart(static_cast<int>(prompt.tokens.size()));
      const std::vector<float> logits = runner.Feed(prompt.tokens, prompt.positions);
      const int vocab = served.backend().model().vocab;
      for (size_t row = 0; row < prompt.positions.size(); ++row) {
        const float* const ours = &logits[row * vocab];
        const float* const exact = &prompt.logits[row * vocab];
        divergences[int8].push_back(Divergence(exact, ours, vocab));
        errors[int8].push_back(RelativeError(ours, exact, vocab));
        if (int8 == 0) continue;
        ++rows;
        agreeing += std::max_element(ours, ours + vocab) - ours ==
                    std::max_element(exact, exact + vocab) - exact;
      }
    }
  }
  const auto median = [](std::vector<double>& x) {
    std::sort(x.begin(), x.end());
    return x[x.size() / 2];
  };
  const double error = median(errors[1]), divergence = median(divergences[1]);
  CHECK(error < 2 * median(errors[0]));
  CHECK(divergence < 2e-3);
  CHECK(agreeing > 0.94 * rows);
  std::printf("%s KV int8: median error %.4f (bf16 %.4f), divergence %.2g (%.2g), top-1 %d of %d\n",
              name.c_str(), error, median(errors[0]), divergence, median(divergences[0]), agreeing,
              rows);
}

TEST_CASE("keys after rope and values land where KvLayout says") {
  const std::string name = GENERATE(from_range(Cases()));
  const std::string dtype = GENERATE("fp32", "bf16");
  const int page_tokens = GENERATE(16, 64);
  INFO(name << " " << dtype << " pages of " << page_tokens);
  const OracleCase oracle = LoadOracleCase(name);
  EngineOptions options = OptionsFor(oracle.folder, dtype);
  options.page_tokens = page_tokens;
  const std::unique_ptr<Backend> backend = LoadOrDie(options);
  const auto prompt = std::find_if(oracle.prompts.begin(), oracle.prompts.end(),
                                   [](const OraclePrompt& p) { return p.name == "p17"; });
  SequenceRunner runner(*backend, kMostTokens);
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
  const std::string name = GENERATE(from_range(Cases()));
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
