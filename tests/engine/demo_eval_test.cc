// The demo model answers its evaluation prompts as often as its README says.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/engine/sequence_runner.h"
#include "tests/support/eval_prompts.h"
#include "tests/support/local_engine.h"

namespace baton {
namespace {

constexpr int kBatch = 16;
constexpr int kChunk = 256;

EngineOptions DemoOptions(const std::string& dtype, const std::string& kv_dtype = "bf16") {
  EngineOptions options;
  options.kv_dtype = kv_dtype;
  options.model = std::string(BATON_SOURCE_DIR) + "/models/demo";
  options.dtype = dtype;
  options.threads = 2;
  options.limits.max_step_tokens = 1024;
  return options;
}

// The right answers among prompts 0, stride, 2 * stride, ..., many at a time in mixed steps, and
// the right answers of transformers for the same prompts.
struct Score {
  int n = 0, correct = 0, correct_fp32 = 0;
};

Score Evaluate(const EngineOptions& options, int stride) {
  absl::StatusOr<std::unique_ptr<LocalEngine>> engine = LocalEngine::Create(options, kBatch * 40);
  REQUIRE(engine.ok());
  std::vector<EvalPrompt> prompts;
  int index = 0;
  for (EvalPrompt& prompt : ReadEvalPrompts()) {
    if (index++ % stride == 0) prompts.push_back(std::move(prompt));
  }
  Score score;
  for (size_t first = 0; first < prompts.size(); first += kBatch) {
    const size_t n = std::min<size_t>(kBatch, prompts.size() - first);
    std::vector<LocalRequest> requests(n);
    for (size_t i = 0; i < n; ++i) {
      requests[i].prompt = prompts[first + i].prompt;
      // One token more than expected, because an answer that continues is wrong.
      requests[i].max_tokens = static_cast<int>(prompts[first + i].expected.size()) + 1;
    }
    const absl::StatusOr<std::vector<Generation>> answers = (*engine)->Generate(requests, kChunk);
    REQUIRE(answers.ok());
    for (size_t i = 0; i < n; ++i) {
      ++score.n;
      score.correct += (*answers)[i].tokens == prompts[first + i].expected;
      score.correct_fp32 += prompts[first + i].is_correct_fp32;
    }
  }
  std::printf("%s, every %d. prompt: %d of %d right, transformers fp32 %d\n",
              (*engine)->backend().numerics_id().c_str(), stride, score.correct, score.n,
              score.correct_fp32);
  return score;
}

}  // namespace

TEST_CASE("the demo model answers every eighth evaluation prompt as well as the reference") {
  const Score score = Evaluate(DemoOptions("bf16", GENERATE("bf16", "int8")), 8);
  CHECK(score.n > 100);
  // One point of about a hundred.
  CHECK(std::abs(score.correct - score.correct_fp32) <= 1);
}

TEST_CASE("with integer weights it answers as many of every eighth, but for a few") {
  const auto [dtype, max_lost] = GENERATE(table<std::string, int>({{"int8", 2}, {"int4", 5}}));
  const Score score = Evaluate(DemoOptions(dtype), 8);
  CHECK(score.n > 100);
  CHECK(score.correct_fp32 - score.correct <= max_lost);
}

TEST_CASE("the demo model answers all evaluation prompts within a point of the reference",
          "[.][full]") {
  const Score score = Evaluate(DemoOptions("bf16"), 1);
  CHECK(score.n == 970);
  CHECK(100.0 * std::abs(score.correct - score.correct_fp32) / score.n <= 1.0);
}

TEST_CASE("KV in int8 loses at most 1.5 points of all evaluation prompts", "[.][full]") {
  const Score score = Evaluate(DemoOptions("bf16", "int8"), 1);
  CHECK(score.n == 970);
  CHECK(100.0 * (score.correct_fp32 - score.correct) / score.n <= 1.5);
}

TEST_CASE("integer weights lose at most 1.5 points (int8) and 5 points (int4)", "[.][full]") {
  const auto [dtype, group, max] = GENERATE(table<std::string, int, double>(
      {{"int8", 128, 1.5}, {"int4", 128, 5.0}, {"int4", 64, 5.0}, {"int4", 32, 5.0}}));
  EngineOptions options = DemoOptions(dtype);
  options.int4_group = group;
  const Score score = Evaluate(options, 1);
  CHECK(score.n == 970);
  CHECK(100.0 * (score.correct_fp32 - score.correct) / score.n <= max);
}

TEST_CASE("the demo model's greedy tokens equal the reference step by step") {
  const std::string dtype = GENERATE("fp32", "bf16");
  // bf16 may differ where two tokens are nearly equal.
  const double clear_margin = dtype == "fp32" ? 1e-3 : 0.5;
  const std::unique_ptr<Backend> backend = LoadOrDie(DemoOptions(dtype));
  SequenceRunner runner(*backend, 1024);
  std::map<std::string, std::vector<int32_t>> prompts;
  for (const EvalPrompt& prompt : ReadEvalPrompts()) prompts[prompt.id] = prompt.prompt;
  const boost::json::value expected =
      boost::json::parse(ReadAll(std::string(BATON_SOURCE_DIR) + "/models/demo/expected.json"));
  int compared = 0;
  for (const boost::json::value& entry : expected.at("greedy").as_array()) {
    const auto prompt = prompts.find(entry.at("id").as_string().c_str());
    if (prompt == prompts.end() || prompt->second.size() > 300) continue;  // fp32 is slow
    INFO(prompt->first);
    const std::vector<int32_t> tokens = NumbersOf<int32_t>(entry.at("token_ids"));
    const std::vector<double> margin = NumbersOf<double>(entry.at("margin"));
    runner.Restart();
    std::vector<float> logits = runner.FeedLast(prompt->second);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      if (margin[i] >= clear_margin) {
        CHECK(best == tokens[i]);
        ++compared;
      }
      logits = runner.FeedLast(std::span(&tokens[i], 1));
    }
  }
  CHECK(compared > 200);
}

}  // namespace baton
