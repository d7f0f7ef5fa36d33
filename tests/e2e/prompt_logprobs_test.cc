// Log-probabilities of prompts through a cluster inside one process: bit for bit those of one local
// engine that takes a step per token, wherever and however the prompt is computed.
#include <catch2/catch.hpp>

#include <string>

#include "tests/e2e/sequential_reference.h"

namespace baton {
namespace {

constexpr int kTop = 3;

EngineOptions Engine(int page_tokens = 16) {
  EngineOptions options;
  options.model = "random:" BATON_TEST_DATA "/shapes/llama-tiny.json";
  options.threads = 1;
  options.page_tokens = page_tokens;
  options.limits.max_step_tokens = 512;
  return options;
}

// Prompts of 1 to 600 tokens; every third one does not ask.
std::vector<GenerateRequest> Requests(int n) {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < n; ++i) {
    GenerateRequest request;
    const int length = i == 1 ? 600 : 1 + (i * i * 37) % 300;
    for (int t = 0; t < length; ++t) request.prompt.push_back((i * 131 + t * 29 + t * t) % 500);
    request.max_tokens = 1 + (i * 11) % 17;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.seed = 1000 + static_cast<uint64_t>(i);
    request.want_digests = true;
    request.prompt_logprobs = i % 3 == 2 ? -1 : i % 3 == 0 ? 0 : kTop;
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_CASE("disaggregated = colocated = local, for any chunk, in a crowd and after a prefix hit") {
  const std::vector<GenerateRequest> requests = Requests(16);
  static const std::vector<Expected> expected = Reference(Engine(64), requests);
  const int chunk = GENERATE(7, 64, 0);
  const bool colocated = GENERATE(false, true);
  CAPTURE(chunk, colocated);
  InProcessOptions options;
  options.engine = Engine();
  options.chunk_tokens = chunk;
  options.colocated = colocated;
  InProcessCluster cluster(options);
  CheckAll(cluster.RunAll(requests), expected);
  // Every prompt is in a cache now.
  CheckAll(cluster.RunAll(requests), expected);
  CheckAll(cluster.RunAll({requests[1]}), {expected[1]});
  GenerateRequest plain = requests[1];
  plain.prompt_logprobs = -1;
  const Outcome outcome = cluster.RunAll({plain})[0];
  CHECK(outcome.end.timeline.reused_tokens > 0);
  CHECK(outcome.prompt_logprobs.empty());
}

TEST_CASE("where prompts are shared among ranks of a relay, scored ones are whole") {
  const std::vector<GenerateRequest> requests = Requests(16);
  static const std::vector<Expected> expected = Reference(Engine(64), requests);
  InProcessOptions options;
  options.engine = Engine();
  options.relay_min_tokens = 17;
  InProcessCluster cluster(options);
  CheckAll(cluster.RunAll(requests), expected);
  CHECK(cluster.View().relays > 0);  // of those that do not ask
  CHECK(cluster.RunAll({requests[1]})[0].end.timeline.slices.size() == 1);
}

TEST_CASE("a lost decode worker: the same tokens go on, and nothing is told twice") {
  std::vector<GenerateRequest> requests = Requests(6);
  for (GenerateRequest& request : requests) request.max_tokens = 200;
  const std::vector<Expected> expected = Reference(Engine(64), requests);
  InProcessOptions options;
  options.engine = Engine();
  InProcessCluster cluster(options);
  std::vector<RequestId> ids;
  for (const GenerateRequest& request : requests) ids.push_back(cluster.Submit(request));
  REQUIRE(cluster.WaitTokens(ids[0], 20));
  cluster.StopWorker(2);  // the only worker with role decode
  std::vector<Outcome> outcomes;
  for (const RequestId id : ids) outcomes.push_back(cluster.WaitEnd(id));
  CheckAll(outcomes, expected);
}

TEST_CASE("a lost prefill worker: another one tells everything") {
  std::vector<GenerateRequest> requests = Requests(8);
  const std::vector<Expected> expected = Reference(Engine(64), requests);
  InProcessOptions options;
  options.engine = Engine();
  options.chunk_tokens = 8;
  InProcessCluster cluster(options);
  std::vector<RequestId> ids;
  for (const GenerateRequest& request : requests) ids.push_back(cluster.Submit(request));
  cluster.StopWorker(0);
  std::vector<Outcome> outcomes;
  for (const RequestId id : ids) outcomes.push_back(cluster.WaitEnd(id));
  CheckAll(outcomes, expected);
}

}  // namespace
}  // namespace baton
