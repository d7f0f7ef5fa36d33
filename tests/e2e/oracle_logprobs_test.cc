// Log-probabilities that a cluster tells are those of Hugging Face transformers, within the bounds
// of the reference cases (tests/data/models/README.md): of prompts, also after a prefix hit and of
// a length that a relay takes, and of the token after each prompt.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>

#include <string>

#include "tests/e2e/in_process_cluster.h"
#include "tests/support/oracle_case.h"
#include "tests/support/oracle_logprobs.h"

namespace baton {
namespace {

constexpr int kTop = 5;
constexpr int kRelayTokens = 150;  // two prompts of each case are longer

// Holds what is told after `row` of a prompt's stored rows to the reference. Returns the worst
// error, as a share of its bound.
double WorstOf(const OraclePrompt& prompt, size_t row, double relative, int32_t token,
               float logprob, const std::vector<TokenLogprob>& top) {
  const size_t vocab = prompt.logits.size() / prompt.positions.size();
  const float* const expected = &prompt.logits[row * vocab];
  const double bound = LogprobBound(expected, vocab, relative);
  double worst = std::abs(double{logprob} - LogprobOf(expected, vocab, token)) / bound;
  REQUIRE(top.size() == kTop);
  for (const TokenLogprob& one : top)
    worst = std::max(worst,
                     std::abs(double{one.logprob} - LogprobOf(expected, vocab, one.token)) / bound);
  CHECK(worst <= 1);
  return worst;
}

// scores: asks for the prompt's log-probabilities.
GenerateRequest Asking(const OraclePrompt& prompt, bool scores) {
  GenerateRequest request;
  request.prompt = prompt.tokens;
  request.max_tokens = 2;
  request.sampling.temperature = 0;
  request.sampling.top_logprobs = kTop;
  if (scores) request.prompt_logprobs = kTop;
  return request;
}

}  // namespace

TEST_CASE("logprobs of prompts and of the token after them are the reference's") {
  const std::string name = GENERATE("llama32", "qwen3", "mistral_window");
  const std::string dtype = GENERATE("fp32", "bf16");
  INFO(name << " " << dtype);
  const OracleCase oracle = LoadOracleCase(name);
  InProcessOptions options;
  options.engine.model = oracle.model;
  options.engine.dtype = dtype;
  options.engine.threads = 1;
  options.engine.page_tokens = 16;
  options.engine.limits.max_step_tokens = 256;
  options.chunk_tokens = 100;
  options.relay_min_tokens = kRelayTokens;
  InProcessCluster cluster(options);
  std::vector<GenerateRequest> plain, scored;
  for (const OraclePrompt& prompt : oracle.prompts) {
    plain.push_back(Asking(prompt, false));
    scored.push_back(Asking(prompt, true));
  }
  const std::vector<Outcome> first = cluster.RunAll(scored);
  // The router may choose the worker that has not computed a prompt: a few rounds until one has.
  std::vector<Outcome> others;
  int64_t reused = 0;
  for (int round = 0; round < 10 && reused == 0; ++round) {
    others = cluster.RunAll(plain);
    for (const Outcome& outcome : others) reused += outcome.end.timeline.reused_tokens;
  }
  CHECK(reused > 0);
  CHECK(cluster.View().relays > 0);
  // Now every prompt is in a cache, whose KV does not tell what a prompt's tokens were worth.
  const std::vector<Outcome> again = cluster.RunAll(scored);
  double worst = 0;
  int n_rows = 0;
  for (size_t i = 0; i < oracle.prompts.size(); ++i) {
    const OraclePrompt& prompt = oracle.prompts[i];
    INFO(prompt.name);
    REQUIRE(again[i].prompt_logprobs == first[i].prompt_logprobs);
    REQUIRE(again[i].prompt_logprobs.size() == prompt.tokens.size() - 1);
    const double relative = dtype == "fp32" ? prompt.bound_fp32 : prompt.bound_bf16;
    for (const Outcome& outcome : {first[i], others[i], again[i]}) {
      REQUIRE(outcome.end.reason == EndReason::kLength);
      REQUIRE(prompt.positions.back() + 1 == static_cast<int>(prompt.tokens.size()));
      worst = std::max(worst, WorstOf(prompt, prompt.positions.size() - 1, relative,
                                      outcome.tokens[0], outcome.logprobs[0], outcome.beside[0]));
    }
    // The bound of bf16 is one of last rows.
    if (dtype == "bf16") continue;
    for (size_t row = 0; row + 1 < prompt.positions.size(); ++row) {
      const auto at = static_cast<size_t>(prompt.positions[row]);
      const PromptLogprob& told = again[i].prompt_logprobs[at];
      worst = std::max(
          worst, WorstOf(prompt, row, relative, prompt.tokens[at + 1], told.logprob, told.top));
      ++n_rows;
    }
  }
  CHECK((dtype == "bf16" || n_rows > 100));
  std::printf("%s %s: worst logprob %.2f of its bound, %d rows of prompts\n", name.c_str(),
              dtype.c_str(), worst, n_rows);
}

}  // namespace baton
