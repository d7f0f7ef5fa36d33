// Requests to clusters inside one process; sequential_reference.h has the answers.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/load_backend.h"
#include "tests/e2e/in_process_cluster.h"
#include "tests/e2e/sequential_reference.h"
#include "tests/support/drawn_sampling.h"
#include "tests/support/hash_grammar.h"

namespace baton {

inline const std::string kTiny = "random:" BATON_TEST_DATA "/shapes/llama-tiny.json";
inline const std::string kDemo = BATON_SOURCE_DIR "/models/demo";

inline EngineOptions Engine(const std::string& model, int page_tokens = 64,
                            const std::string& isa = "") {
  EngineOptions options;
  options.model = model;
  options.threads = 1;
  options.page_tokens = page_tokens;
  options.limits.max_step_tokens = 512;
  if (!isa.empty()) options.isa = isa;
  return options;
}

// Makes prompts of 1 to about 600 tokens, half of them sampled with a seed.
inline std::vector<GenerateRequest> Requests(int n, int vocab) {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < n; ++i) {
    GenerateRequest request;
    const int length = 1 + (i * i * 37) % 600;
    for (int t = 0; t < length; ++t)
      request.prompt.push_back(static_cast<int32_t>((i * 131 + t * 29 + t * t) % vocab));
    request.max_tokens = 1 + (i * 11) % 37;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.top_k = i % 3 == 0 ? 40 : 0;
    request.sampling.top_p = i % 5 == 0 ? 0.9f : 1.0f;
    request.sampling.seed = 1000 + static_cast<uint64_t>(i);
    request.want_digests = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Every parameter of the sampler, drawn together; min_tokens is about stop tokens. A third have a
// grammar too, and nothing beside it that could leave no token; of a fifth the prompt is scored.
inline std::vector<GenerateRequest> DrawnRequests(int n, int vocab, int max_tokens) {
  std::vector<GenerateRequest> requests = Requests(n, vocab);
  for (GenerateRequest& request : requests) {
    request.sampling = DrawSampling(request.sampling, vocab);
    request.max_tokens = max_tokens;
    if (request.sampling.seed % 5 == 1)
      request.prompt_logprobs = static_cast<int32_t>(request.sampling.seed % 4);
    if (request.sampling.seed % 3 != 0) continue;
    request.sampling.grammar = {GrammarKind::kRegex, absl::StrCat(request.sampling.seed)};
    request.sampling.allowed_tokens.clear();
    request.sampling.vocab_end = 0;
  }
  return requests;
}

// Runs the requests and stops the decode worker while all of them decode; others then go on.
inline std::vector<Outcome> RunAllAndLoseDecode(InProcessCluster* cluster,
                                                const std::vector<GenerateRequest>& requests) {
  std::vector<RequestId> ids;
  for (const GenerateRequest& request : requests) ids.push_back(cluster->Submit(request));
  for (const RequestId id : ids) REQUIRE(cluster->WaitTokens(id, 3));
  cluster->StopWorker(2);  // the only worker with role decode
  std::vector<Outcome> outcomes;
  size_t attempts = 0;
  for (const RequestId id : ids) {
    outcomes.push_back(cluster->WaitEnd(id));
    attempts += static_cast<size_t>(outcomes.back().end.timeline.attempts);
  }
  REQUIRE(attempts > requests.size());
  return outcomes;
}

inline absl::StatusOr<SharedGrammar> CompileHashGrammar(const GrammarSpec& spec) {
  return HashGrammarOf(spec, kGrammarVocab);
}

}  // namespace baton
