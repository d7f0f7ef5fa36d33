// Comparison of an engine with Hugging Face transformers (tests/data/models/README.md).
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/served_model.h"

namespace baton {

// Returns the relative error of every stored row of a prompt, in the order of positions.
inline std::vector<double> RowErrors(SequenceRunner& runner, const OraclePrompt& prompt,
                                     int vocab) {
  runner.Restart(static_cast<int>(prompt.tokens.size()));
  const std::vector<float> logits = runner.Feed(prompt.tokens, prompt.positions);
  std::vector<double> errors;
  for (size_t row = 0; row < prompt.positions.size(); ++row) {
    const size_t at = row * vocab;
    errors.push_back(RelativeError(&logits[at], &prompt.logits[at], vocab));
  }
  return errors;
}

// Feeds the expected tokens one by one; the argmax must be the expected token wherever the margin
// is large enough for this precision. Returns the number of steps compared. Where the reference
// changes to longrope's long factors, a sequence of that range starts again, as in the reference.
inline int CompareGreedy(SequenceRunner& runner, const OraclePrompt& prompt, double clear_margin) {
  if (prompt.greedy.empty()) return 0;
  const int n_prompt = static_cast<int>(prompt.tokens.size());
  const int max_total_tokens = n_prompt + static_cast<int>(prompt.greedy.size());
  runner.Restart(prompt.rope_switch_step < 0 ? max_total_tokens : n_prompt);
  std::vector<float> logits = runner.FeedLast(prompt.tokens);
  int compared = 0;
  for (size_t i = 0; i < prompt.greedy.size(); ++i) {
    if (static_cast<int>(i) == prompt.rope_switch_step) {
      std::vector<int32_t> tokens = prompt.tokens;
      tokens.insert(tokens.end(), prompt.greedy.begin(), prompt.greedy.begin() + i);
      runner.Restart(max_total_tokens);
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

// Logits and greedy tokens in bf16 are within the reference's own bf16 error.
inline void CompareInBf16(const std::string& name, const OracleCase& oracle, ServedModel& served) {
  INFO(name);
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

}  // namespace baton
