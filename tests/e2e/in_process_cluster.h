// A whole cluster in one process: routers, Workers with real engines, gRPC streams and UCX between
// them. For tests that need the inside of the processes.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lab/emulated_engine.h"
#include "tests/e2e/in_process_router.h"
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
  int routers = 1;             // all workers are those of each
  bool withhold_acks = false;  // by the KV links of all workers (tests/support/withheld_acks.h)
  LabConfig::Device device{};  // of each worker, if it is emulated
  // Makes what copies KV of what would, on devices; null: the copier itself.
  std::function<std::unique_ptr<CellCopier>(std::unique_ptr<CellCopier>)> wrap_copier;
};

class InProcessCluster {
 public:
  // Returns when every worker has announced itself. Fails the test on any error.
  explicit InProcessCluster(const InProcessOptions& options);
  ~InProcessCluster();  // calls Stop

  // Calls of the first router.
  RequestId Submit(GenerateRequest request) { return router(0).Submit(std::move(request)); }
  void Cancel(RequestId id) { router(0).Cancel(id); }
  bool WaitTokens(RequestId id, size_t n_tokens) { return router(0).WaitTokens(id, n_tokens); }
  Outcome WaitEnd(RequestId id) { return router(0).WaitEnd(id); }
  std::vector<Outcome> RunAll(const std::vector<GenerateRequest>& requests);
  ClusterView View() { return router(0).View(); }
  InProcessRouter& router(int i) { return *routers_[i]; }
  Worker& worker(int i) { return *workers_[i]; }
  int n_workers() const { return static_cast<int>(workers_.size()); }
  void StopWorker(int i);
  // Counts what the emulated devices have found while their workers ran.
  int64_t findings() const;
  // Stops the control servers while the workers run on.
  void StopRouter();
  void Stop();

 private:
  std::vector<std::unique_ptr<InProcessRouter>> routers_;
  std::vector<std::unique_ptr<EmulatedEngine>> devices_;  // of the workers, or none
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace baton
