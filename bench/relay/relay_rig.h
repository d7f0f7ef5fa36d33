// The processes of `baton bench relay MODEL` on this machine: p ranks, one worker with the threads
// of all ranks, and a decode worker that receives KV. KV goes over the production Transfer (UCX tcp
// on loopback), slowed down to an emulated link if requested. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/relay/rank_orders.h"
#include "bench/relay/rank_process.h"

namespace baton {

struct RelayRigOptions {
  std::string program = "/proc/self/exe";
  EngineOptions engine;  // model, dtype, isa, cache_dir, ...; threads and the like are set here
  EngineLab lab;
  int ranks = 2;
  int threads_per_rank = 1;
  int max_tokens = 4096;  // of a prompt, whole pages
  std::vector<int> pool_pages =
      {};  // of the first processes, as many as this names; else as needed
  LinkPace pace;
  bool with_wide = true, with_sink = true, with_residuals = false;
};

class RelayRig {
 public:
  static absl::StatusOr<std::unique_ptr<RelayRig>> Start(const RelayRigOptions& options);

  int ranks() const { return options_.ranks; }
  int wide() const { return options_.ranks; }  // numbers of the processes after the ranks
  int sink() const { return options_.ranks + 1; }
  const RelayRigOptions& options() const { return options_; }
  const RankStarted& started() const { return started_[0]; }
  int page_tokens() const { return started_[0].page_tokens; }
  int PagesOf(int tokens) const { return (tokens + page_tokens() - 1) / page_tokens(); }

  // Adds a transfer of the KV of tokens [from, to), from in whole pages, to the runs of both
  // processes.
  void Connect(int from_process, int to_process, int from, int to, std::vector<RankRun>& runs);

  // Adds a transfer of the residual stream of all tokens from a stage of a pipeline to the next,
  // behind their KV.
  void ConnectStages(int from_process, int to_process, int tokens, std::vector<RankRun>& runs);

  struct Outcome {
    double begin = 0;             // monotonic seconds
    std::vector<RankDone> ranks;  // (processes)
  };
  // Runs the processes together. runs: (processes); only those that take part have work.
  absl::StatusOr<Outcome> Run(const std::vector<RankRun>& runs);
  std::vector<RankRun> Runs(int tokens, uint64_t seed) const;  // (processes), without work
  // Returns a chain: slice i on rank i, all KV before a slice's end to the next rank.
  std::vector<RankRun> ChainRuns(const std::vector<int>& slices, uint64_t seed);

 private:
  explicit RelayRig(const RelayRigOptions& options) : options_(options) {}
  absl::Status StartProcesses();
  void Link(int from_process, int from_page, int to_process, int to_page, int n_pages,
            std::vector<RankRun>& runs);

  const RelayRigOptions options_;
  std::vector<std::unique_ptr<RankProcess>> processes_;  // ranks, wide, sink; null: not started
  std::vector<RankStarted> started_;
  uint64_t next_ticket_ = 1;
};

}  // namespace baton
