// Parameters of the sampler and grammars, drawn together: a disaggregated cluster, a colocated one
// and relays, alone and among 32, give the tokens, digests and log-probabilities of one local
// engine, and after the decode worker is lost as well. Slices run in CI; "[.][drawn]" is the
// command of docs/CONTRIBUTING.md.
#include <map>
#include <random>

#include "tests/e2e/exact_requests.h"

namespace baton {
namespace {

TEST_CASE("drawn parameters of the sampler: disaggregated = colocated = a relay = local") {
  std::vector<GenerateRequest> requests = DrawnRequests(32, 500, 40);
  for (size_t i = 0; i < requests.size(); i += 5) requests[i].max_tokens = 1;
  static const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  InProcessOptions options;
  options.compile_grammar = CompileHashGrammar;
  options.engine = Engine(kTiny, 16);
  SECTION("disaggregated") {}
  SECTION("colocated") { options.colocated = true; }
  SECTION("ranks of a relay") { options.relay_min_tokens = 17; }
  InProcessCluster cluster(options);
  CheckAll(cluster.RunAll(requests), expected);
  CheckAll(cluster.RunAll({requests[3]}), {expected[3]});
}

TEST_CASE("drawn parameters of the sampler: the same after the decode worker is lost") {
  const std::vector<GenerateRequest> requests = DrawnRequests(16, 500, 150);
  const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  InProcessOptions options;
  options.compile_grammar = CompileHashGrammar;
  options.engine = Engine(kTiny, 16);
  InProcessCluster cluster(options);
  CheckAll(RunAllAndLoseDecode(&cluster, requests), expected);
}

// How many of the requests have each parameter.
std::map<std::string, int> CountParameters(const std::vector<GenerateRequest>& requests) {
  std::map<std::string, int> counts;
  for (const GenerateRequest& request : requests) {
    const SamplingParams& p = request.sampling;
    counts["greedy"] += p.temperature == 0;
    counts["temperature"] += p.temperature > 0;
    counts["top_k"] += p.top_k > 0;
    counts["top_p"] += p.top_p < 1;
    counts["min_p"] += p.min_p > 0;
    counts["presence_penalty"] += p.presence_penalty != 0;
    counts["frequency_penalty"] += p.frequency_penalty != 0;
    counts["repetition_penalty"] += p.repetition_penalty != 1;
    counts["min_tokens"] += p.min_tokens > 0;
    counts["logit_bias"] += !p.logit_bias.empty();
    counts["allowed_tokens"] += !p.allowed_tokens.empty();
    counts["bad_words"] += !p.bad_words.empty();
    counts["reasoning"] += p.reasoning.is_set();
    counts["vocab_end"] += p.vocab_end > 0;
    counts["grammar"] += p.grammar.kind != GrammarKind::kNone;
    counts["top_logprobs"] += p.top_logprobs >= 0;
    counts["logprob_tokens"] += !p.logprob_tokens.empty();
    counts["prompt_logprobs"] += request.prompt_logprobs >= 0;
  }
  return counts;
}

// Outcomes of all requests, at most n at once.
std::vector<Outcome> RunBy(InProcessCluster* cluster, const std::vector<GenerateRequest>& requests,
                           size_t n) {
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < requests.size(); i += n) {
    const auto begin = requests.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end =
        requests.begin() + static_cast<std::ptrdiff_t>(std::min(requests.size(), i + n));
    for (Outcome& outcome : cluster->RunAll({begin, end})) outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

TEST_CASE("200 requests a parameter: disaggregated = colocated = local, alone and among 32",
          "[.][drawn]") {
  std::vector<GenerateRequest> requests = DrawnRequests(1'800, 500, 30);
  for (size_t i = 0; i < requests.size(); i += 5) requests[i].max_tokens = 1;
  for (const auto& [name, n] : CountParameters(requests)) {
    WARN(name << ": " << n << " requests");
    CHECK(n >= 200);
  }
  const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  for (const bool colocated : {false, true}) {
    InProcessOptions options;
    options.compile_grammar = CompileHashGrammar;
    options.engine = Engine(kTiny, 16);
    options.colocated = colocated;
    InProcessCluster cluster(options);
    CheckAll(RunBy(&cluster, requests, 32), expected);
    CheckAll(RunBy(&cluster, requests, 1), expected);
  }
}

}  // namespace
}  // namespace baton
