// `baton bench grammar`: processor time of compiling grammars and of each mask, over typical
// schemas and a text of each, and over texts of random tokens (the hardest case: a model's are more
// regular).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/kernel_result.h"
#include "common/status.h"

namespace baton {

struct GrammarBenchOptions {
  std::string tokenizer;  // folder with a tokenizer.json; empty: a synthetic one of `vocab` tokens
  int vocab = 128'000;
  int rounds = 3;        // texts of each grammar
  int max_tokens = 400;  // of a random text
  uint64_t seed = 1;
  bool json = false;
};

absl::StatusOr<std::vector<KernelResult>> MeasureGrammars(const GrammarBenchOptions& options);
absl::Status RunGrammarBench(const GrammarBenchOptions& options);

}  // namespace baton
