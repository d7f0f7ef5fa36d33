// `baton bench grammar`: processor time of compiling grammars and of each mask, over typical
// schemas and a text of each, and over texts of random tokens (the hardest case: a model's are more
// regular). With a model: also its decode steps, with grammars and without.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/kernel_result.h"
#include "common/status.h"
#include "engine/step/engine_options.h"

namespace baton {

struct GrammarBenchOptions {
  std::string tokenizer;  // folder with a tokenizer.json; empty: a synthetic one of `vocab` tokens
  int vocab = 128'000;
  int rounds = 3;        // texts of each grammar
  int max_tokens = 400;  // of a random text
  uint64_t seed = 1;
  EngineOptions engine;  // model empty: no steps
  int rows = 8;          // of a step
  int context = 128;     // tokens before each row
  int steps = 60;        // of each kind
  bool json = false;
};

absl::StatusOr<std::vector<KernelResult>> MeasureGrammars(const GrammarBenchOptions& options);
absl::Status RunGrammarBench(const GrammarBenchOptions& options);

}  // namespace baton
