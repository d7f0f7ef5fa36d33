// The requests of the chaos clients: a catalogue with mixed lengths, a pure function of its options
// and seed, so that a run without faults can send exactly the same requests first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton {

struct ChaosRequest {
  std::string kind;  // "short", "long", "chat", "story": for reports
  std::string path;  // path of the API
  std::string body;  // JSON
  bool stream = true;
};

struct CatalogueOptions {
  int n_requests = 64;
  uint64_t seed = 1;
  int vocab = 2048;
  bool has_text = true;  // the model has a tokenizer and a chat template
  int long_min = 1000;   // tokens of long prompts
  int long_max = 3000;   //
  int max_output = 300;  // tokens of the longest answers
};

// Makes requests: half greedy, half sampled with a seed; three of four streamed; a third with the
// log-probabilities of the prompt. Every request asks for token ids, digests of its logits and
// timings.
std::vector<ChaosRequest> MakeCatalogue(const CatalogueOptions& options);

}  // namespace baton
