// The reference of every cluster: the answers of one local engine to the same requests, one after
// the other.
#pragma once

#include <catch2/catch.hpp>

#include <vector>

#include "engine/load_backend.h"
#include "tests/e2e/in_process_cluster.h"
#include "tests/support/hash_grammar.h"
#include "tests/support/sequential_run.h"

namespace baton {

struct Expected : SequentialTokens {
  std::vector<PromptLogprob> prompt_logprobs;  // if the request asks for them
};

constexpr int kGrammarVocab = 500;  // of HashGrammarOf

// Every prompt in one piece.
inline std::vector<Expected> Reference(EngineOptions options,
                                       const std::vector<GenerateRequest>& requests) {
  options.limits.max_step_tokens = 1024;
  auto backend = LoadBackend(options);
  INFO(backend.status().ToString());
  REQUIRE(backend.ok());
  std::vector<Expected> out;
  for (const GenerateRequest& r : requests) {
    out.push_back({SequentialRun(backend->get(), r.prompt, r.max_tokens, r.sampling, r.stop_tokens,
                                 HashGrammarOf(r.sampling.grammar, kGrammarVocab)),
                   {}});
    if (r.prompt_logprobs >= 0)
      out.back().prompt_logprobs = SequentialScores(backend->get(), r.prompt, r.prompt_logprobs,
                                                    r.max_tokens, r.sampling.vocab_end);
  }
  return out;
}

// The requests want digests.
inline void CheckAll(const std::vector<Outcome>& outcomes, const std::vector<Expected>& expected) {
  REQUIRE(outcomes.size() == expected.size());
  for (size_t i = 0; i < outcomes.size(); ++i) {
    CAPTURE(i, outcomes[i].end.status.ToString());
    REQUIRE(outcomes[i].end.reason == EndReason::kLength);
    REQUIRE(outcomes[i].tokens == expected[i].tokens);
    REQUIRE(outcomes[i].digests == expected[i].digests);
    REQUIRE(outcomes[i].logprobs == expected[i].logprobs);
    REQUIRE(outcomes[i].beside == expected[i].beside);
    REQUIRE(outcomes[i].prompt_logprobs == expected[i].prompt_logprobs);
  }
}

}  // namespace baton
