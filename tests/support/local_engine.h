// One engine in one process without scheduler, wire or other worker: the reference for every other
// way of serving a request, bit by bit. Tests, benchmarks and tools use it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/sampling_params.h"
#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"

namespace baton {

struct LocalRequest {
  std::vector<int32_t> prompt;  // not empty
  int max_tokens = 16;
  SamplingParams sampling{.temperature = 0};
  bool ignore_eos = false;
};

struct Generation {
  std::vector<int32_t> tokens;     // with the stop token
  std::vector<uint64_t> digests;   // digest of the logits of each token, chained
  std::vector<float> last_logits;  // (vocab) of the last step
};

class LocalEngine {
 public:
  // n_pages: pages of the KV pool, enough for all requests of one Generate call together.
  static absl::StatusOr<std::unique_ptr<LocalEngine>> Create(const EngineOptions& options,
                                                             int n_pages);
  // Takes a backend already loaded.
  static absl::StatusOr<std::unique_ptr<LocalEngine>> Create(std::unique_ptr<Backend> backend,
                                                             int max_step_tokens, int n_pages);

  // Generates for all requests, which share every step: those with prompt left bring at most
  // `chunk` tokens of it (0 = all that fits the step), the others decode one token. Returns results
  // in the order of the requests. Error: a request that does not fit the context or the pool, or a
  // token id outside the vocabulary.
  absl::StatusOr<std::vector<Generation>> Generate(std::span<const LocalRequest> requests,
                                                   int chunk = 0);
  absl::StatusOr<Generation> Generate(const LocalRequest& request, int chunk = 0);

  Backend& backend() { return *backend_; }
  KvPool& pool() { return *pool_; }

 private:
  struct Sequence;
  LocalEngine(std::unique_ptr<Backend> backend, int max_step_tokens, std::unique_ptr<KvPool> pool);
  absl::Status Check(const LocalRequest& request) const;
  void RunStep(std::vector<Sequence>& sequences, int chunk);
  void Accept(Sequence& sequence, std::span<const float> logits);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  int max_step_tokens_;
  Sampler sampler_;
  StepBuilder step_;
  StepOutput output_;
};

}  // namespace baton
