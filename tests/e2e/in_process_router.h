// A router inside the test's process: the Router core behind a real ControlServer, on a front
// thread of its own, and what came of each request. For tests that need the inside of the
// processes.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/ticket.h"
#include "proto/control_server.h"
#include "router/router.h"

namespace baton {

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> digests;  // digest of each token's logits row, not chained
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> beside;  // EmitToken::logprobs
  std::vector<PromptLogprob> prompt_logprobs;     // EmitToken::prompt_logprobs of all tokens
  bool ended = false;
  EmitEnd end;
};

class InProcessRouter {
 public:
  // Listens on a free port of the loopback. Fails the test on any error.
  InProcessRouter(const RouterOptions& options, const ClusterKey& key);
  ~InProcessRouter();  // calls Stop

  std::string address() const;
  // Waits for so many workers of both kinds that have announced themselves. Fails the test after 20
  // seconds.
  void AwaitWorkers(int prefill_and_decode, int decode);
  RequestId Submit(GenerateRequest request);
  void Cancel(RequestId id);
  // Waits until the request has n_tokens tokens or has ended. False: after a minute.
  bool WaitTokens(RequestId id, size_t n_tokens);
  Outcome WaitEnd(RequestId id);  // fails the test after two minutes
  ClusterView View();
  void Stop();  // ends all streams; workers run on

 private:
  void RunFront();
  void Apply();  // applies effects; mutex_ held

  std::mutex mutex_;
  std::condition_variable front_wakes_, outcome_changed_;
  bool woken_ = false, stopping_ = false;
  std::unique_ptr<Router> router_;
  std::unique_ptr<ControlServer> server_;
  std::map<RequestId, Outcome> outcomes_;
  std::thread front_;
};

}  // namespace baton
