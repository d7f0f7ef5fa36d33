// Dispatch: chooses the workers of an attempt and sends them their parts, takes an attempt back,
// and decides how a request goes on whose attempt broke. Part of the Router, on its thread.
#pragma once

#include <span>
#include <vector>

#include "router/cluster.h"
#include "router/request.h"

namespace baton {

class RouterDispatch {
 public:
  // random: the source of ids. Messages are appended to `effects`, which outlives the dispatch, as
  // `cluster` does.
  RouterDispatch(const ClusterKey& key, uint64_t (*random)(), Cluster* cluster,
                 std::vector<RouterEffect>* effects)
      : key_(key), random_(random), cluster_(*cluster), effects_(*effects) {}

  // Starts an attempt at a request that waits, if a worker can take it.
  void Try(Request& request, absl::Time now);
  // Takes the running attempt back and starts another one, or leaves the request waiting. Error:
  // the request is to be given up, and waits.
  absl::Status Retry(Request& request, const AttemptFailure& failure, absl::Time now);
  // Does the same after a preemption, or for a worker with room: nothing has failed.
  void Redo(Request& request, absl::Time now);
  // The decode worker is full: takes another one if that is predicted to be sooner, and returns
  // true.
  bool Reassign(Request& request, absl::Duration expected_wait, absl::Time now);
  // Cancels the running attempt's parts and releases what they took.
  void Cancel(const Request& request) { TakeBack(request, std::nullopt); }
  // Remembers what its workers have cached of an ended request behind whole pages.
  void NoteTails(Request& request);
  // True if Retry may put another worker in place of one of the attempt's, whichever is at fault.
  bool MayMend(const Request& request, absl::Time now) const;
  // Returns why a late relay is to be given up, if it is late by several times what one worker
  // alone would take from what the first rank has; else it is not late until then.
  std::optional<AttemptFailure> GiveUpLate(Request& request, absl::Time now) const;

  // Counts since the start; all else is empty.
  const ClusterView& totals() const { return totals_; }

 private:
  bool Follow(Request& request, const Plan& plan, absl::Time now);
  void DispatchTo(Request& request, const Plan& plan, absl::Time now);
  void SendAttempt(const Request& request, std::span<const SliceSpec> slices);
  Ticket MintPromise(RequestId request, Epoch epoch, Incarnation sink, int32_t kv_pages,
                     int32_t promise_pages, absl::Time now);
  KvOutput MintOutput(const Ticket& promise, Incarnation source, int32_t begin, int32_t first_page,
                      int32_t end_page);
  std::vector<SliceSpec> MintSlices(RequestId request, Attempt::Order* order, absl::Time now);
  // next: the plan that follows at once; its ranks keep what they have computed.
  void TakeBack(const Request& request, const std::optional<Plan>& next);
  void RecordBroken(Incarnation source, Incarnation sink, absl::Time now);
  std::optional<Plan> Mend(const Request& request, absl::Time now) const;
  void LogMend(const Request& request, const Plan& mended, const AttemptFailure& failure) const;
  void Send(Incarnation worker, RouterMessage message) {
    effects_.push_back(SendToWorker{.worker = worker, .message = std::move(message)});
  }

  // False where no KV is reused, by the cluster or for this request.
  bool ReusesKv(const Request& request) const {
    return !request.is_scored() && !cluster_.prefixes.empty();
  }

  const ClusterKey key_;
  uint64_t (*const random_)();
  Cluster& cluster_;
  std::vector<RouterEffect>& effects_;
  ClusterView totals_;
};

}  // namespace baton
