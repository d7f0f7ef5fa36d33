// Several WorkerCores in one thread on virtual time, with a transfer room that moves the cells of
// their pools with random delays, and a router that dispatches requests and counts tokens and ends.
// The seed decides every order: the next worker to turn, the landing of messages, the cancels.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/decode_worker/sim_transfer.h"
#include "tests/support/hash_backend.h"
#include "tests/support/late_backend.h"
#include "worker/worker_core.h"

namespace baton {

struct SimWorkerOptions {
  Role role = Role::kBoth;
  int pages = 64;
  int max_batch = 4;
  int max_step_tokens = 32;
  int mixed_prefill_tokens = 8;
  int chunk_tokens = 0;
  int64_t announce_bytes = 1;
  bool reuse_kv = true;
  int depth = 0;  // steps that the engine has under way; 0: it computes on return
};

struct SimRequest {
  std::vector<int32_t> prompt;
  int max_tokens = 1;
  SamplingParams sampling;
  std::vector<int32_t> stop_tokens;
};

class SimCluster {
 public:
  SimCluster(uint64_t seed, int page_tokens, const std::vector<SimWorkerOptions>& workers);

  // Dispatches a request to two workers (equal ones: colocated). n_pages_spare: pages promised
  // beyond the need.
  RequestId Submit(SimRequest request, int prefill, int decode);
  void Cancel(RequestId id);
  int preemptions() const { return preemptions_; }
  int max_under_way() const { return max_under_way_; }  // steps of an engine at once
  // Fails every ticket in the transfer room as if its peer had died.
  void BreakHandoffs() { transfer_.FailAll(); }
  void DropMessages();  // drops commands on their way to workers
  void WakeAll();       // gives every worker a turn
  // Does one random thing. False: nothing can happen any more (time moves on by itself).
  bool Step();
  // Steps until nothing happens; CHECKs that this comes to an end.
  void RunDry();
  // Closes every worker and checks that all pages come back.
  void Shutdown();

  struct Progress {
    SimRequest request;
    int prefill = 0, decode = 0;
    Ticket ticket;                     // of the attempt that runs
    int n_prompt = 0, max_tokens = 0;  // of that attempt
    int preemptions = 0;
    std::map<int, TokenOut> tokens;  // by position
    bool prefill_ended = false, decode_ended = false, cancelled = false;
    PartEnded prefill_end, decode_end;
    int first_token_step = 0;  // steps of its prefill worker when the first token came
    bool ended() const { return prefill_ended && (decode_ended || max_tokens == 1); }
  };
  const Progress& progress(RequestId id) const { return progress_.at(id); }
  const std::map<RequestId, Progress>& all() const { return progress_; }
  WorkerCore& core(int worker) { return *workers_[worker]->core; }
  KvPool& pool(int worker) { return *workers_[worker]->pool; }
  HashBackend& reference() { return reference_; }
  int no_room_notices() const { return no_room_notices_; }
  // The tokens a request must have got; and did, with the right ends.
  void CheckExact(RequestId id);

 private:
  struct SimWorker {
    std::unique_ptr<KvPool> pool;
    std::unique_ptr<Backend> backend;
    LateBackend* late = nullptr;  // `backend` if it computes later
    std::unique_ptr<WorkerCore> core;
    std::deque<RouterMessage> messages;
    bool awake = true;
    bool is_settled = true;  // no message since its last turn: all its effects are out
  };
  void Dispatch(RequestId id);
  void DispatchPreempted();  // as the router does
  void OnReport(int worker, const WorkerReport& report);
  void CheckPages(int worker) const;
  int Pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  std::mt19937_64 random_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  HashBackend reference_;
  SimTransfer transfer_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::map<RequestId, Progress> progress_;
  RequestId next_id_ = 1;
  std::vector<RequestId> preempted_;  // to be dispatched again
  int no_room_notices_ = 0, preemptions_ = 0, max_under_way_ = 0;
};

}  // namespace baton
