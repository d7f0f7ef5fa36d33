// A whole cluster in one process: Router core behind a real ControlServer, Workers with real
// engines, gRPC streams and UCX between them. For tests that need the inside of the processes.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "proto/control_server.h"
#include "router/router.h"
#include "worker/worker.h"

namespace baton {

struct InProcessOptions {
  EngineOptions engine;
  int prefill_workers = 2, decode_workers = 1;
  bool colocated = false;  // one worker for both phases
  int kv_pages = 0;        // 0: 4096 tokens' worth times 8
  int max_batch = 40;
  int chunk_tokens = 0;
  int relay_min_tokens = 0;
  bool local = false;       // decode workers may compute prompts
  int relay_max_ranks = 2;  // also the min, if the workers exist
  GrammarCompilerFn compile_grammar;
  bool withhold_acks = false;  // by the KV links of all workers (tests/support/withheld_acks.h)
};

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> digests;  // digest of each token's logits row, not chained
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> beside;  // EmitToken::logprobs
  std::vector<PromptLogprob> prompt_logprobs;     // EmitToken::prompt_logprobs of all tokens
  bool ended = false;
  EmitEnd end;
};

class InProcessCluster {
 public:
  // Returns when every worker has announced itself. Fails the test on any error.
  explicit InProcessCluster(const InProcessOptions& options);
  ~InProcessCluster();  // calls Stop

  RequestId Submit(GenerateRequest request);
  void Cancel(RequestId id);
  // Waits until the request has n_tokens tokens or has ended. False: after a minute.
  bool WaitTokens(RequestId id, size_t n_tokens);
  Outcome WaitEnd(RequestId id);  // fails the test after two minutes
  std::vector<Outcome> RunAll(const std::vector<GenerateRequest>& requests);
  ClusterView View();
  Worker& worker(int i) { return *workers_[i]; }
  int n_workers() const { return static_cast<int>(workers_.size()); }
  void StopWorker(int i) { workers_[i].reset(); }
  // Stops the control server while the workers run on.
  void StopRouter();
  void Stop();

 private:
  void RunFront();
  void Apply();  // applies effects; mutex_ held

  std::mutex mutex_;
  std::condition_variable front_wakes_, outcome_changed_;
  bool woken_ = false, stopping_ = false;
  std::unique_ptr<Router> router_;
  std::unique_ptr<ControlServer> server_;
  std::map<RequestId, Outcome> outcomes_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::thread front_;
};

}  // namespace baton
