// The clients of a simulated run and the oracle of what they must get: every stream has the very
// tokens and log-probabilities of a sequential run of its own, in order, no gap, no repeat, and one
// end. Half of the requests have penalties, biases, masks and logprobs, and a fifth asks for the
// log-probabilities of its prompt, which come with the first token, once.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/kv/kv_pool.h"
#include "router/router.h"
#include "tests/sim/agenda.h"
#include "tests/sim/swarm.h"
#include "tests/support/hash_backend.h"

namespace baton::sim {

struct ClientCounts {
  uint64_t submitted = 0, complete = 0, cancelled = 0, late = 0, failed = 0, attempts = 0,
           tokens = 0;
  uint64_t lost = 0;  // requests that ended because the router was lost

  void Add(const ClientCounts& other);
};

// Prediction of a request's last attempt, and what came: seconds, 0: unknown.
struct Foretold {
  double predicted = 0, took = 0;     // from the attempt to the first token
  double predicted_gap = 0, gap = 0;  // mean time between tokens
  // Parts of the time to the first token: before the prompt is computed, and while it is.
  double predicted_queue = 0, queue = 0, compute = 0;
  int32_t reused_tokens = 0;
  std::string prefill_worker{}, decode_worker{};
  double ttft_error() const { return std::abs(took / predicted - 1); }
  double gap_error() const { return std::abs(gap / predicted_gap - 1); }
};

class Clients {
 public:
  Clients(const Swarm& swarm, Agenda* agenda, SimRandom* random);
  ~Clients();

  // Submits the next request, or again one that was turned away.
  using Submit = std::function<absl::StatusOr<RequestId>(GenerateRequest)>;
  void Arrive(const Submit& submit);
  void OnToken(const EmitToken& token);
  void OnEnd(const EmitEnd& end);
  void OnRouterLost(RouterId router);  // ends its running requests
  // Returns the id to cancel for an entry of the agenda, 0: the client no longer wants to cancel.
  RequestId IdToCancel(int request);
  RequestId AnyRunning();  // 0: none
  void NoteCancelled(RequestId id);
  bool IsOver(RequestId id) { return Find(id).ended; }
  bool BreaksItsGrammar(RequestId id) { return Find(id).breaks; }

  bool all_submitted() const { return requests_.size() >= static_cast<size_t>(swarm_.n_requests); }
  bool all_ended() const { return n_running_ == 0; }
  const ClientCounts& counts() const { return counts_; }
  // Returns seconds, in order of arrival, for requests that got a token.
  std::vector<double> TimesToFirstToken() const;
  // In order of arrival, for requests that were served by one attempt.
  std::vector<Foretold> Predictions() const;
  std::string DescribeRunning() const;

 private:
  struct Request {
    RequestId id = 0;
    GenerateRequest wanted;
    std::vector<int32_t> tokens;  // the expected stream
    std::vector<uint64_t> digests;
    std::vector<float> logprobs;
    std::vector<std::vector<TokenLogprob>> beside;  // EmitToken::logprobs
    std::vector<PromptLogprob> scores;              // of the prompt, if asked for
    bool breaks = false;                            // its grammar, after these tokens
    size_t n_got = 0;
    int cancel_after = -1;  // tokens
    bool cancelled = false, ended = false;
    int64_t deadline_us = INT64_MAX;
    int64_t arrived_us = 0, first_token_us = 0, last_token_us = 0;  // 0: none
    std::optional<Foretold> foretold{};
  };
  GenerateRequest Draw();
  void ContinueConversation(GenerateRequest* request);
  void DrawGrammar(int max_tokens, SamplingParams* sampling);
  GenerateRequest NextOfScript() const;
  int64_t NextArrivalUs();
  void Expect(Request* request);
  void CheckOvertaking(const Request& request);
  static void NoteForetold(const Timeline& timeline, Request* request);
  Request& Find(RequestId id);

  const Swarm& swarm_;
  Agenda* const agenda_;
  SimRandom* const random_;
  SimRandom turns_random_;
  HashBackend reference_;
  std::unique_ptr<KvPool> reference_pool_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::map<RequestId, int> index_;
  std::unique_ptr<GenerateRequest> turned_away_;
  int n_running_ = 0;
  int64_t overtaking_ = 0;  // later prompt tokens computed before the long request's
  ClientCounts counts_;
};

}  // namespace baton::sim
