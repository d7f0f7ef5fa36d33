// Chooses who computes and walks each request through its life. Never touches KV bytes, text or
// sockets: a plain object on the front thread, event in, effects out, so that the same code runs in
// the simulation. Time is monotonic and comes in as an argument. Errors of workers' events are
// violations of the control protocol, and end the worker's stream.
#pragma once

#include "common/router_id.h"
#include "router/cluster.h"
#include "router/request_index.h"
#include "router/router_dispatch.h"
#include "router/router_messages.h"
#include "router/router_options.h"

namespace baton {

class Router {
 public:
  // random: the source of ids (tests give a counter).
  Router(const RouterOptions& options, const ClusterKey& key, uint64_t (*random)());
  RouterId id() const { return id_; }  // is in the ids of its requests

  // Errors, at once: ResourceExhausted (queue full), InvalidArgument (can never fit, values out of
  // range), Unavailable (no worker now, or draining). The caller gives every request a seed.
  absl::StatusOr<RequestId> Submit(GenerateRequest wanted, absl::Time now);
  // Ends the request with kCancelled; unknown or ended ids are ignored.
  void Cancel(RequestId id, absl::Time now);
  // Takes nothing new; running requests go on to their end. Workers serve other routers on.
  void Drain();
  // Changes these options: for requests that come from now on, and for the view's pool sizes.
  void SetLimits(int max_waiting, absl::Duration sizing_gap);

  // Takes a report of a worker's stream. The first one of a stream carries WorkerAnnounce; one
  // without events is a sign of life, and every one tells whether the engine turns. Error: the
  // caller closes the stream with that reason (protocol violation, or a worker of another model,
  // numerics or layout than the cluster's, the field named). The Router has forgotten the worker
  // then; OnWorkerLost does nothing more.
  absl::Status OnReport(Incarnation worker, const WorkerReport& report, absl::Time now);
  void OnWorkerLost(Incarnation worker, absl::Time now);  // the worker's stream broke
  // Handles deadlines and silence. The caller gives reports that have arrived first. A late call
  // means that the router itself stood still, so no worker's silence counts.
  void OnTime(absl::Time now);
  absl::Time NextDeadline() const;  // the latest time of the next OnTime

  // Effects since the last call, in order.
  std::vector<RouterEffect> TakeEffects();
  ClusterView View() const;
  std::vector<WorkerView> Workers() const;  // in no order
  // Nothing: the request is unknown or has ended.
  std::optional<RequestView> Progress(RequestId id, absl::Time now) const;
  const CachedPrefixes& prefixes() const { return cluster_.prefixes; }

 private:
  absl::Status On(Incarnation worker, const WorkerAnnounce& announce, absl::Time now);
  absl::Status On(Incarnation worker, const WorkerLoad& load, absl::Time now);
  absl::Status On(Incarnation worker, const TokenOut& token, absl::Time now);
  absl::Status On(Incarnation worker, const PromptComputed& computed, absl::Time now);
  absl::Status On(Incarnation worker, const PromptLogprobs& told, absl::Time now);
  absl::Status On(Incarnation worker, const PartEnded& ended, absl::Time now);
  absl::Status On(Incarnation worker, const NoRoomNotice& notice, absl::Time now);
  absl::Status On(Incarnation worker, const CachedPages& told, absl::Time now);
  // Ends what is complete and dispatches again what broke. After a whole report, so that the end of
  // a part that travels with the last token is in the timeline.
  void Settle(absl::Time now);
  void SettleOne(Request& request, absl::Time now);
  void Retry(Request& request, const AttemptFailure& failure, absl::Time now);
  void OnAlarm(Request& request, absl::Time now);
  void LoseSilentWorkers(absl::Time now);
  // took_work: before the report.
  void OnEngineTurn(Incarnation worker, const EngineTurn& turn, bool took_work, absl::Time now);
  // how: the reason, or the error of EndReason::kFailed.
  void End(Request& request, const absl::StatusOr<EndReason>& how, absl::Time now);

  RouterOptions options_;
  const RouterId id_;
  Cluster cluster_;
  RequestIndex requests_;
  std::vector<RouterEffect> effects_;
  RouterDispatch dispatch_;
  std::vector<RequestId> unsettled_;                // to be settled when the report is through
  absl::Time next_pulse_ = absl::InfiniteFuture();  // when silence is looked at
  std::array<uint64_t, kRecomputeReasons> recomputed_tokens_{};
  uint64_t preemptions_ = 0;
  uint64_t next_sequence_ = 1;
  bool draining_ = false;
};

}  // namespace baton
