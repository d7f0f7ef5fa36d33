// The Router's state, for its own files, on its thread: router.cc hears reports, ends requests and
// keeps time, router_dispatch.cc chooses workers and starts attempts. router.h has the errors.
// `now` is monotonic.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "router/cluster.h"
#include "router/journey.h"
#include "router/relay_watch.h"
#include "router/router.h"

namespace baton {

// Lets the next attempt ask this worker last.
void Blame(Journey& journey, Incarnation worker);

struct Router::State {
  State(const RouterOptions& router_options, const ClusterKey& cluster_key, uint64_t (*ids)())
      : options(router_options), key(cluster_key), random(ids), cluster(router_options) {}

  absl::StatusOr<RequestId> Submit(GenerateRequest request, absl::Time now);
  absl::Status OnReport(Incarnation worker, const WorkerReport& report, absl::Time now);
  absl::Status OnEvent(Incarnation worker, const WorkerEvent& event, absl::Time now);
  absl::Status On(Incarnation worker, const WorkerAnnounce& announce, absl::Time now);
  absl::Status On(Incarnation worker, const WorkerLoad& load, absl::Time now);
  absl::Status On(Incarnation worker, const TokenOut& token, absl::Time now);
  absl::Status On(Incarnation worker, const PromptComputed& computed, absl::Time now);
  absl::Status On(Incarnation worker, const PromptLogprobs& told, absl::Time now);
  absl::Status On(Incarnation worker, const PartEnded& ended, absl::Time now);
  absl::Status On(Incarnation worker, const NoRoomNotice& notice, absl::Time now);
  void LoseWorker(Incarnation worker, absl::Time now);
  void LoseSilentWorkers(absl::Time now);
  void OnTime(absl::Time now);
  void OnAlarm(Journey& journey, absl::Time now);

  // Dispatch (router_dispatch.cc).
  void TryDispatch(Journey& journey, absl::Time now);
  void SendAttempt(const Journey& journey);
  // Completes `ticket`, which holds what differs between handoffs of an attempt.
  Ticket MintTicket(const Journey& journey, Incarnation sink, Ticket ticket);
  std::vector<RelayRound> MintSlices(const Journey& journey, const Ticket& main);
  Push PushOf(const Journey& journey, const Ticket& main, int32_t begin, int32_t end);
  void DispatchTo(Journey& journey, const Plan& plan, absl::Time now);
  // next: the plan that follows at once; its ranks keep what they have computed.
  void Recall(Journey& journey, absl::Time now, const std::optional<Plan>& next = std::nullopt);
  std::optional<Plan> Mend(const Journey& journey, absl::Time now);
  void LookAtRelay(Journey& journey, absl::Time now);
  std::vector<HopProgress> HopsOf(const Journey& journey) const;
  bool MayMend(const Journey& journey, absl::Time now);
  void LogMend(const Journey& journey, const Plan& mended, const Journey::Failure& failure) const;
  // Ends a request that fails on every worker.
  void EndHopeless(Journey& journey, const Journey::Verdict& verdict, absl::Time now);
  void RecordRecomputed(const Journey& journey, const PartEnded& ended);
  void Retry(Journey& journey, const Journey::Failure& failure, absl::Time now);
  void Reassign(Journey& journey, absl::Duration expected_wait, absl::Time now);
  void DispatchWaiting(absl::Time now);
  absl::Status WhyExhausted(Journey& journey, const Journey::Failure& failure) const;

  void Settle(absl::Time now);
  void End(Journey& journey, EndReason reason, const absl::Status& status, absl::Time now);
  void Forget(Journey& journey);
  void DrainWorkersIfIdle();

  Journey* Find(RequestId id) {
    const auto it = journeys.find(id);
    return it == journeys.end() ? nullptr : it->second.get();
  }
  void SetAlarm(Journey& journey) {
    alarms.erase({journey.alarm, journey.id()});
    journey.alarm = journey.Alarm();
    if (journey.alarm != absl::InfiniteFuture()) alarms.insert({journey.alarm, journey.id()});
  }
  // The alarm may ring early, and is then set again: moving the alarm with every token would be
  // slow.
  void KeepAlarm(Journey& journey) {
    if (journey.Alarm() < journey.alarm) SetAlarm(journey);
  }
  void Send(Incarnation worker, RouterMessage message) {
    effects.push_back(SendToWorker{.worker = worker, .message = std::move(message)});
  }
  void SendCancel(Incarnation worker, RequestId id, Epoch epoch) {
    if (cluster.members.Find(worker) != nullptr)
      Send(worker, CancelRequest{.request_id = id, .epoch = epoch});
  }
  size_t n_living() const { return journeys.size() - ending.size(); }

  const RouterOptions options;
  const ClusterKey key;
  uint64_t (*const random)();
  Cluster cluster;
  absl::flat_hash_map<RequestId, std::unique_ptr<Journey>> journeys;
  absl::btree_map<uint64_t, RequestId> waiting;  // not dispatched, by Journey::sequence
  absl::btree_set<RequestId> ending;
  absl::btree_set<std::pair<absl::Time, RequestId>> alarms;
  absl::Time next_pulse = absl::InfiniteFuture();  // when silence is looked at
  std::vector<RequestId> unsettled;                // to be looked at when the report is through
  std::vector<RouterEffect> effects;
  std::array<uint64_t, kFailoverCauses> failovers{};
  std::array<uint64_t, kRecomputeReasons> recomputed_tokens{};
  uint64_t relays_in_rounds = 0, ranks_replaced = 0, sinks_replaced = 0, replaced_in_rounds = 0;
  std::array<uint64_t, kRelayPushes> relays_by_push{};
  uint64_t next_sequence = 1;
  bool draining = false;
};

}  // namespace baton
