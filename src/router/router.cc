#include "router/router.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/planted_bug.h"
#include "router/cluster.h"
#include "router/journey.h"

namespace baton {
namespace {

// Moves to a worker with room are no failures, but each throws away a place in a queue.
constexpr int kMostMoves = 4;
// Looks at the workers' silence within the time it may last.
constexpr int kPulses = 4;

absl::Status CheckRequest(const GenerateRequest& request) {
  if (request.prompt.empty())
    return absl::InvalidArgumentError("the prompt is empty: give at least one token");
  if (request.max_tokens < 1)
    return absl::InvalidArgumentError(
        absl::StrFormat("max_tokens is %d, must be at least 1", request.max_tokens));
  const SamplingParams& sampling = request.sampling;
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0)
    return absl::InvalidArgumentError(
        absl::StrFormat("temperature is %g, must be at least 0", sampling.temperature));
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return absl::InvalidArgumentError(
        absl::StrFormat("top_p is %g, must be in (0, 1]", sampling.top_p));
  return absl::OkStatus();
}

// Whom the next attempt asks last.
void Blame(Journey& journey, Incarnation worker) {
  if (std::find(journey.avoid.begin(), journey.avoid.end(), worker) == journey.avoid.end())
    journey.avoid.push_back(worker);
}

// A handoff broke: first the receiver is taken to be at fault, the next time the sender too.
void BlameHandoff(Journey& journey) {
  const Plan& plan = journey.plan();
  Blame(journey, plan.decode);
  std::vector<Incarnation>& in_vain = journey.handed_in_vain;
  if (std::find(in_vain.begin(), in_vain.end(), plan.prefill) != in_vain.end())
    Blame(journey, plan.prefill);
  else
    in_vain.push_back(plan.prefill);
}

}  // namespace

struct Router::State {
  State(const RouterOptions& router_options, const ClusterKey& cluster_key, uint64_t (*ids)())
      : options(router_options),
        key(cluster_key),
        random(ids),
        cluster(router_options.transitions) {}

  absl::StatusOr<RequestId> Submit(GenerateRequest request, absl::Time now);
  absl::Status OnReport(Incarnation worker, const WorkerReport& report, absl::Time now);
  absl::Status OnEvent(Incarnation worker, const WorkerEvent& event, absl::Time now);
  absl::Status On(Incarnation worker, const WorkerAnnounce& announce, absl::Time now);
  absl::Status On(Incarnation worker, const WorkerLoad& load, absl::Time now);
  absl::Status On(Incarnation worker, const TokenOut& token, absl::Time now);
  absl::Status On(Incarnation worker, const PromptComputed& computed, absl::Time now);
  absl::Status On(Incarnation worker, const PartEnded& ended, absl::Time now);
  absl::Status On(Incarnation worker, const NoRoomNotice& notice, absl::Time now);
  void LoseWorker(Incarnation worker, absl::Time now);
  void LoseSilentWorkers(absl::Time now);
  void OnTime(absl::Time now);
  void OnAlarm(Journey& journey, absl::Time now);

  void TryAim(Journey& journey, absl::Time now);
  void SendAttempt(const Journey& journey);
  void Disarm(Journey& journey, absl::Time now);
  void AimAgain(Journey& journey, const Journey::Failure& failure, absl::Time now);
  void MoveToRoom(Journey& journey, absl::Duration expected_wait, absl::Time now);
  void Settle(absl::Time now);
  void AimWaiting(absl::Time now);
  void End(Journey& journey, EndReason reason, const absl::Status& status, absl::Time now);
  void Forget(Journey& journey);
  void DrainWorkersIfIdle();
  absl::Status WhyExhausted(Journey& journey, const Journey::Failure& failure) const;

  Journey* Find(RequestId id) {
    const auto it = journeys.find(id);
    return it == journeys.end() ? nullptr : it->second.get();
  }
  void SetAlarm(Journey& journey) {
    alarms.erase({journey.alarm, journey.id()});
    journey.alarm = journey.Alarm();
    if (journey.alarm != absl::InfiniteFuture()) alarms.insert({journey.alarm, journey.id()});
  }
  // The alarm may ring early, and is then set again: moving it with every token would be dear.
  void KeepAlarm(Journey& journey) {
    if (journey.Alarm() < journey.alarm) SetAlarm(journey);
  }
  void Send(Incarnation worker, RouterMessage message) {
    effects.push_back(SendToWorker{.worker = worker, .message = std::move(message)});
  }
  void SendCancel(Incarnation worker, RequestId id, Epoch epoch) {
    if (cluster.Find(worker) != nullptr)
      Send(worker, CancelRequest{.request_id = id, .epoch = epoch});
  }
  size_t n_living() const { return journeys.size() - ending.size(); }

  const RouterOptions options;
  const ClusterKey key;
  uint64_t (*const random)();
  Cluster cluster;
  absl::flat_hash_map<RequestId, std::unique_ptr<Journey>> journeys;
  absl::btree_map<uint64_t, RequestId> waiting;  // by sequence: not aimed
  absl::btree_set<RequestId> ending;
  absl::btree_set<std::pair<absl::Time, RequestId>> alarms;
  absl::Time next_pulse = absl::InfiniteFuture();  // when silence is looked at
  std::vector<RequestId> unsettled;                // to be looked at when the report is through
  std::vector<RouterEffect> effects;
  std::array<uint64_t, kFailoverCauses> failovers{};
  uint64_t next_sequence = 1;
  bool draining = false;
};

absl::StatusOr<RequestId> Router::State::Submit(GenerateRequest request, absl::Time now) {
  RETURN_IF_ERROR(CheckRequest(request));
  if (draining) return absl::UnavailableError("the router is shutting down");
  if (cluster.empty()) return absl::UnavailableError("no worker is connected yet");
  if (!cluster.serves()) return absl::UnavailableError("all workers are shutting down");
  if (n_living() >= static_cast<size_t>(options.max_waiting))
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d requests are running or waiting: try again later", n_living()));
  const AttemptShape shape{.n_prompt = static_cast<int32_t>(request.prompt.size()),
                           .max_tokens = request.max_tokens};
  if (!cluster.Choose(shape, {}, now))
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d prompt tokens and max_tokens %d do not fit into any worker's context or KV pages",
        shape.n_prompt, shape.max_tokens));
  RequestId id = random();
  while (id == 0 || journeys.contains(id)) id = random();
  auto& journey = journeys[id];
  journey = std::make_unique<Journey>(id, next_sequence++, std::move(request), options, now);
  waiting[journey->sequence()] = id;
  SetAlarm(*journey);
  TryAim(*journey, now);
  return id;
}

// --- aiming -----------------------------------------------------------------------------------

void Router::State::TryAim(Journey& journey, absl::Time now) {
  const std::optional<Plan> plan = cluster.Choose(journey.Shape(), journey.avoid, now);
  if (!plan) return;  // it waits, until a worker comes or its alarm rings
  waiting.erase(journey.sequence());
  cluster.Reserve(journey.id(), *plan, journey.Shape(), now);
  journey.Aim(*plan, cluster.Find(plan->prefill)->name,
              plan->decode == 0 ? "" : cluster.Find(plan->decode)->name, now);
  SetAlarm(journey);
  SendAttempt(journey);
}

// The decode worker hears of its guest before the prefill worker can send OPEN to it; if the wires
// turn that around, the ticket alone is enough.
void Router::State::SendAttempt(const Journey& journey) {
  const Plan& plan = journey.plan();
  Ticket ticket{.id = {.high = random(), .low = random()},
                .epoch = journey.epoch(),
                .request_id = journey.id(),
                .sink = plan.decode};
  TransferPeer sink;
  if (plan.decode != 0) {
    const WorkerAnnounce& decode = *cluster.Find(plan.decode);
    const AttemptShape shape = journey.Shape();
    sink = decode.transfer;
    ticket.kv_pages = PromptPages(shape, decode.page_tokens);
    ticket.promise_pages = PromisePages(shape, decode.page_tokens);
    Send(plan.decode, journey.MakeDecodeRequest(ticket.id));
  }
  SignTicket(key, ticket);
  Send(plan.prefill, journey.MakePrefillRequest(ticket, sink));
}

// Takes the request away from its workers; it waits from now on.
void Router::State::Disarm(Journey& journey, absl::Time now) {
  for (const Incarnation worker : journey.OpenWorkers())
    if (worker == journey.plan().decode || !Planted(PlantedBug::kPrefillNotCancelled))
      SendCancel(worker, journey.id(), journey.epoch());
  if (!Planted(PlantedBug::kLedgerKept)) cluster.Release(journey.id(), journey.plan());
  journey.Disarm(now);
  waiting[journey.sequence()] = journey.id();
  SetAlarm(journey);
}

// OK while it may be tried again.
absl::Status Router::State::WhyExhausted(Journey& journey, const Journey::Failure& failure) const {
  switch (failure.cause) {
    case FailoverCause::kDraining:  // such workers are not asked again
      return absl::OkStatus();
    case FailoverCause::kWorkerLost:
    case FailoverCause::kHandoffFailed:
      if (++journey.lost_attempts < options.max_lost_attempts) return absl::OkStatus();
      return absl::AbortedError(absl::StrFormat(
          "gave up: %d times in a row a worker was lost while it had this request, which may be "
          "the cause; the last time: %s",
          journey.lost_attempts, failure.message));
    case FailoverCause::kPartFailed:
    case FailoverCause::kStuck:
      break;
  }
  if (++journey.failures < options.max_attempts) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat("gave up after %d attempts; the last one: %s",
                                                journey.failures, failure.message));
}

void Router::State::AimAgain(Journey& journey, const Journey::Failure& failure, absl::Time now) {
  ++failovers[static_cast<size_t>(failure.cause)];
  if (journey.attempt_got_on()) journey.failures = journey.lost_attempts = 0;
  if (failure.cause == FailoverCause::kHandoffFailed) BlameHandoff(journey);
  Disarm(journey, now);
  const absl::Status exhausted = WhyExhausted(journey, failure);
  if (exhausted.ok())
    TryAim(journey, now);
  else
    End(journey, EndReason::kFailed, exhausted, now);
}

// The decode worker is full. Prefill has not begun (it waits for the promise), so another worker
// with room loses nothing but the place in the queue; predictions decide whether that is sooner.
void Router::State::MoveToRoom(Journey& journey, absl::Duration expected_wait, absl::Time now) {
  if (journey.attempt_spoke() || journey.moves >= kMostMoves) return;
  const Plan plan = journey.plan();
  const AttemptShape shape = journey.Shape();
  cluster.Release(journey.id(), plan);
  const std::optional<Plan> other = cluster.Choose(shape, journey.avoid, now);
  cluster.Reserve(journey.id(), plan, shape, now);
  const double stay_ms =
      absl::ToDoubleMilliseconds(expected_wait) + cluster.OwnPrefillMs(plan.prefill, shape);
  if (!other || other->decode == plan.decode || other->predicted_ms >= stay_ms) return;
  ++journey.moves;
  Disarm(journey, now);
  TryAim(journey, now);
}

void Router::State::AimWaiting(absl::Time now) {
  const absl::btree_map<uint64_t, RequestId> in_order = waiting;
  for (const auto& [sequence, id] : in_order) TryAim(*Find(id), now);
}

// --- reports ----------------------------------------------------------------------------------

absl::Status Router::State::OnReport(Incarnation worker, const WorkerReport& report,
                                     absl::Time now) {
  absl::Status status;
  cluster.OnHeard(worker, now);
  for (const WorkerEvent& event : report.events) {
    status = OnEvent(worker, event, now);
    if (!status.ok()) break;
  }
  if (!status.ok()) LoseWorker(worker, now);
  Settle(now);
  return status;
}

absl::Status Router::State::OnEvent(Incarnation worker, const WorkerEvent& event, absl::Time now) {
  if (cluster.Find(worker) == nullptr && !std::holds_alternative<WorkerAnnounce>(event))
    return absl::FailedPreconditionError("a worker must announce itself before anything else");
  return std::visit([&](const auto& value) { return On(worker, value, now); }, event);
}

absl::Status Router::State::On(Incarnation worker, const WorkerAnnounce& announce, absl::Time now) {
  if (announce.incarnation != worker)
    return absl::InvalidArgumentError(
        absl::StrFormat("worker %s announced another incarnation than it proved", announce.name));
  RETURN_IF_ERROR(cluster.Join(announce, now));
  next_pulse = std::min(next_pulse, now + options.worker_silence / kPulses);
  AimWaiting(now);
  DrainWorkersIfIdle();
  return absl::OkStatus();
}

absl::Status Router::State::On(Incarnation worker, const WorkerLoad& load, absl::Time now) {
  cluster.OnLoad(worker, load, now);
  return absl::OkStatus();
}

absl::Status Router::State::On(Incarnation worker, const TokenOut& token, absl::Time now) {
  Journey* const journey = Find(token.request_id);
  if (journey == nullptr) return absl::OkStatus();  // ended
  RETURN_IF_ERROR(journey->OnToken(worker, token, now, &effects));
  if (!journey->aimed()) return absl::OkStatus();
  KeepAlarm(*journey);
  if (worker == journey->plan().prefill) cluster.OnPrefillComputed(worker, journey->id());
  if (worker == journey->plan().decode)
    cluster.OnTokensLeft(worker, journey->id(), journey->tokens_left());
  if (journey->complete()) unsettled.push_back(journey->id());
  return absl::OkStatus();
}

absl::Status Router::State::On(Incarnation worker, const PromptComputed& computed, absl::Time now) {
  Journey* const journey = Find(computed.request_id);
  if (journey == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(journey->OnPromptComputed(worker, computed, now));
  KeepAlarm(*journey);
  return absl::OkStatus();
}

absl::Status Router::State::On(Incarnation worker, const PartEnded& ended, absl::Time now) {
  Journey* const journey = Find(ended.request_id);
  const bool failed = ended.reason == EndReason::kFailed;
  if (failed && ended.fault == PartFault::kDraining) cluster.OnDraining(worker);
  if (journey != nullptr) {
    RETURN_IF_ERROR(journey->OnPartEnded(worker, ended, now));
    if (failed && ended.epoch == journey->epoch() && ended.fault == PartFault::kOwn)
      Blame(*journey, worker);
    if (journey->lives()) {
      KeepAlarm(*journey);
      unsettled.push_back(journey->id());
    } else if (journey->OpenWorkers().empty()) {
      effects.push_back(EmitReleased{.request_id = journey->id(), .after = now - journey->ended()});
      Forget(*journey);
    }
  }
  return absl::OkStatus();
}

absl::Status Router::State::On(Incarnation worker, const NoRoomNotice& notice, absl::Time now) {
  Journey* const journey = Find(notice.request_id);
  if (journey == nullptr || !journey->aimed() || journey->epoch() != notice.epoch)
    return absl::OkStatus();
  const Plan& plan = journey->plan();
  if (worker != plan.prefill && worker != plan.decode)
    return absl::InvalidArgumentError("no room for a request that was not given to this worker");
  if (plan.decode == 0 || cluster.Find(plan.decode) == nullptr) return absl::OkStatus();
  const absl::Duration wait = absl::Microseconds(notice.expected_wait_us);
  journey->OnNoRoom(wait, now);
  KeepAlarm(*journey);
  cluster.OnNoRoom(plan.decode, wait, now);
  MoveToRoom(*journey, wait, now);
  return absl::OkStatus();
}

void Router::State::LoseWorker(Incarnation worker, absl::Time now) {
  const WorkerAnnounce* const about = cluster.Find(worker);
  if (about == nullptr) return;
  const std::string name = about->name;
  std::vector<Journey*> affected;
  for (const RequestId id : cluster.Leave(worker)) affected.push_back(Find(id));
  std::sort(affected.begin(), affected.end(),
            [](const Journey* a, const Journey* b) { return a->sequence() < b->sequence(); });
  if (cluster.empty()) next_pulse = absl::InfiniteFuture();
  for (Journey* const journey : affected) {
    journey->OnWorkerLost(worker, name);
    unsettled.push_back(journey->id());
  }
  const absl::btree_set<RequestId> were_ending = ending;
  for (const RequestId id : were_ending) {
    Journey& journey = *Find(id);
    journey.OnWorkerLost(worker, name);
    if (journey.OpenWorkers().empty()) Forget(journey);
  }
  Settle(now);
}

// Ends what is complete and aims again what broke. After a whole report, so that the end of a part
// that travels with the last token is in the timeline.
void Router::State::Settle(absl::Time now) {
  for (const RequestId id : std::exchange(unsettled, {})) {
    Journey* const journey = Find(id);
    if (journey == nullptr || !journey->lives()) continue;
    if (journey->complete()) {
      End(*journey, journey->end_reason(), absl::OkStatus(), now);
    } else if (journey->preempted()) {
      // Its attempts are bounded by Journey::kMostPreemptions.
      ++journey->preemptions;
      Disarm(*journey, now);
      TryAim(*journey, now);
    } else if (const Journey::Failure failure = journey->Broken(); !failure.message.empty()) {
      AimAgain(*journey, failure, now);
    }
  }
}

// --- ends -------------------------------------------------------------------------------------

void Router::State::End(Journey& journey, EndReason reason, const absl::Status& status,
                        absl::Time now) {
  const RequestId id = journey.id();
  effects.push_back(EmitEnd{
      .request_id = id, .reason = reason, .status = status, .timeline = journey.MakeTimeline(now)});
  if (journey.aimed()) {
    for (const Incarnation worker : journey.OpenWorkers()) SendCancel(worker, id, journey.epoch());
    cluster.Release(id, journey.plan());
  } else {
    waiting.erase(journey.sequence());
  }
  journey.End(now);
  ending.insert(id);
  SetAlarm(journey);
  if (journey.OpenWorkers().empty()) Forget(journey);
  DrainWorkersIfIdle();
}

void Router::State::Forget(Journey& journey) {
  journey.Close();
  SetAlarm(journey);  // none any more
  ending.erase(journey.id());
  journeys.erase(journey.id());
}

void Router::State::DrainWorkersIfIdle() {
  if (!draining || n_living() > 0) return;
  for (const Incarnation worker : cluster.Workers()) Send(worker, DrainWorker{});
}

// --- time -------------------------------------------------------------------------------------

void Router::State::OnTime(absl::Time now) {
  if (now >= next_pulse) LoseSilentWorkers(now);
  while (!alarms.empty() && alarms.begin()->first <= now) {
    Journey& journey = *Find(alarms.begin()->second);
    if (journey.Alarm() > now)
      SetAlarm(journey);
    else
      OnAlarm(journey, now);
  }
}

void Router::State::LoseSilentWorkers(absl::Time now) {
  const absl::Duration silence = options.worker_silence;
  if (now - next_pulse > silence / 2) cluster.ForgiveSilence(now);
  const std::vector<Incarnation> silent = cluster.NotHeardSince(now - silence);
  for (const Incarnation worker : silent) cluster.OnDraining(worker);  // no refuge for each other
  for (const Incarnation worker : silent) {
    effects.push_back(
        CloseWorker{.worker = worker,
                    .reason = absl::UnavailableError(absl::StrFormat(
                        "the worker was silent for more than %s", absl::FormatDuration(silence)))});
    LoseWorker(worker, now);
  }
  next_pulse = cluster.empty() ? absl::InfiniteFuture() : now + silence / kPulses;
}

void Router::State::OnAlarm(Journey& journey, absl::Time now) {
  if (!journey.lives()) {
    effects.push_back(
        EmitReleased{.request_id = journey.id(), .after = now - journey.ended(), .overdue = true});
    Forget(journey);
  } else if (journey.IsLate(now)) {
    End(journey, EndReason::kFailed, absl::DeadlineExceededError("the request's time is over"),
        now);
  } else if (!journey.aimed()) {
    End(journey, EndReason::kFailed,
        absl::UnavailableError("its workers were lost and none came back"), now);
  } else {
    for (const Incarnation worker : journey.OpenWorkers()) Blame(journey, worker);
    AimAgain(journey,
             {.cause = FailoverCause::kStuck,
              .message = absl::StrFormat("its workers gave no sign of it for more than %s",
                                         absl::FormatDuration(options.attempt_silence))},
             now);
  }
}

// --- Router -----------------------------------------------------------------------------------

Router::Router(const RouterOptions& options, const ClusterKey& key, uint64_t (*random)())
    : state_(std::make_unique<State>(options, key, random)) {}
Router::~Router() = default;

absl::StatusOr<RequestId> Router::Submit(GenerateRequest request, absl::Time now) {
  return state_->Submit(std::move(request), now);
}

void Router::Cancel(RequestId id, absl::Time now) {
  if (Journey* const journey = state_->Find(id); journey != nullptr && journey->lives())
    state_->End(*journey, EndReason::kCancelled, absl::OkStatus(), now);
}

void Router::Drain() {
  if (std::exchange(state_->draining, true)) return;
  state_->DrainWorkersIfIdle();
}

absl::Status Router::OnReport(Incarnation worker, const WorkerReport& report, absl::Time now) {
  return state_->OnReport(worker, report, now);
}

void Router::OnWorkerLost(Incarnation worker, absl::Time now) { state_->LoseWorker(worker, now); }

void Router::OnTime(absl::Time now) { state_->OnTime(now); }

absl::Time Router::NextDeadline() const {
  const absl::Time alarm =
      state_->alarms.empty() ? absl::InfiniteFuture() : state_->alarms.begin()->first;
  return std::min(alarm, state_->next_pulse);
}

std::vector<RouterEffect> Router::TakeEffects() { return std::exchange(state_->effects, {}); }

ClusterView Router::View() const {
  ClusterView view{.waiting = static_cast<int>(state_->waiting.size()),
                   .draining = state_->draining,
                   .ending = static_cast<int>(state_->ending.size()),
                   .failovers = state_->failovers};
  view.running = static_cast<int>(state_->n_living()) - view.waiting;
  state_->cluster.FillView(&view);
  return view;
}

}  // namespace baton
