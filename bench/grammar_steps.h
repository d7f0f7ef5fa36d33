// Decode steps of a model whose rows have grammars, in turns with the same steps without: what
// structured output costs a batch. Part of `baton bench grammar` where a model is given.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "bench/kernel_result.h"
#include "common/token_grammar.h"
#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"
#include "engine/step/step.h"
#include "worker/mask_thread.h"

namespace baton {

class GrammarSteps {
 public:
  // Prefills n_rows sequences of `context` tokens. end_token ends a text of the grammars. Errors:
  // the model takes no such context.
  static absl::StatusOr<std::unique_ptr<GrammarSteps>> Make(std::unique_ptr<Backend> backend,
                                                            std::vector<SharedGrammar> grammars,
                                                            int32_t end_token, int n_rows,
                                                            int context, uint64_t seed);

  ~GrammarSteps();

  // Microseconds of each step: of one row, of all rows, of all rows with grammars.
  struct Times {
    std::vector<double> one_row, all_rows, constrained;
  };
  // Runs n steps of each kind, in turns.
  absl::StatusOr<Times> Run(int n);

 private:
  struct Row {
    int32_t token = 0;
    std::vector<int32_t> pages;
    SamplingParams params, free_params;
    std::unique_ptr<SequenceSampling> constrained, free;
  };

  GrammarSteps(std::unique_ptr<Backend> backend, std::vector<SharedGrammar> grammars,
               int32_t end_token, int context, uint64_t seed);
  absl::Status Prefill(int n_rows);
  void BeginText(Row* row);
  double RunStep(size_t n_rows, bool is_constrained);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  const std::vector<SharedGrammar> grammars_;
  const int32_t end_token_;
  const int context_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Row>> rows_;  // samplings refer to their parameters
  StepBuilder step_;
  Sampler sampler_;
  MaskThread masks_;
  std::vector<SampledToken> sampled_;
};

}  // namespace baton
