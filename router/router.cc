#include "router/router.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/request_limits.h"
#include "router/router_state.h"

namespace baton {
namespace {

// Looks at the workers' silence within the time it may last.
constexpr int kPulses = 4;

// Checks against the same table as the wire, which therefore never refuses what passes here.
absl::Status CheckRequest(const GenerateRequest& request) {
  using Limits = RequestLimits;
  const auto n_prompt = static_cast<double>(request.prompt.size());
  RETURN_IF_ERROR(CheckLimit(Limits::kPromptTokens, n_prompt));
  RETURN_IF_ERROR(CheckLimit(Limits::kMaxTokens, request.max_tokens));
  RETURN_IF_ERROR(CheckLimit(Limits::kContext, n_prompt + request.max_tokens));
  RETURN_IF_ERROR(CheckSampling(request.sampling));
  RETURN_IF_ERROR(CheckLimit(Limits::kPromptLogprobs, request.prompt_logprobs));
  RETURN_IF_ERROR(
      CheckLimit(Limits::kPromptLogprobEntries, n_prompt * (request.prompt_logprobs + 1)));
  RETURN_IF_ERROR(CheckLimit(Limits::kStopTokens, static_cast<double>(request.stop_tokens.size())));
  for (const std::vector<int32_t>* ids : {&request.prompt, &request.stop_tokens})
    for (const int32_t id : *ids) RETURN_IF_ERROR(CheckLimit(Limits::kTokenId, id));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RequestId> Router::State::Submit(GenerateRequest request, absl::Time now) {
  RETURN_IF_ERROR(CheckRequest(request));
  if (draining) return absl::UnavailableError("the router is shutting down");
  if (cluster.members.all().empty()) return absl::UnavailableError("no worker is connected yet");
  if (!cluster.members.serves()) return absl::UnavailableError("all workers are shutting down");
  if (n_living() >= static_cast<size_t>(options.max_waiting))
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d requests are running or waiting: try again later", n_living()));
  const AttemptSpec shape{.n_prompt = static_cast<int32_t>(request.prompt.size()),
                          .max_tokens = request.max_tokens};
  if (!cluster.predictor.Choose(shape, {}, now))
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d prompt tokens and max_tokens %d do not fit into any worker's context or KV pages",
        shape.n_prompt, shape.max_tokens));
  RequestId id = random();
  while (id == 0 || journeys.contains(id)) id = random();
  if (request.name.empty()) request.name = absl::StrFormat("%016x", id);
  auto& journey = journeys[id];
  journey = std::make_unique<Journey>(id, next_sequence++, std::move(request), options, now);
  waiting[journey->sequence()] = id;
  SetAlarm(*journey);
  TryDispatch(*journey, now);
  return id;
}

// --- reports ----------------------------------------------------------------------------------

absl::Status Router::State::OnReport(Incarnation worker, const WorkerReport& report,
                                     absl::Time now) {
  absl::Status status;
  cluster.members.OnHeard(worker, now);
  for (const WorkerEvent& event : report.events) {
    status = OnEvent(worker, event, now);
    if (!status.ok()) break;
  }
  if (!status.ok()) LoseWorker(worker, now);
  Settle(now);
  return status;
}

absl::Status Router::State::OnEvent(Incarnation worker, const WorkerEvent& event, absl::Time now) {
  if (cluster.members.Find(worker) == nullptr && !std::holds_alternative<WorkerAnnounce>(event))
    return absl::FailedPreconditionError("a worker must announce itself before anything else");
  return std::visit([&](const auto& value) { return On(worker, value, now); }, event);
}

absl::Status Router::State::On(Incarnation worker, const WorkerAnnounce& announce, absl::Time now) {
  if (announce.incarnation != worker)
    return absl::InvalidArgumentError(
        absl::StrFormat("worker %s announced another incarnation than it proved", announce.name));
  RETURN_IF_ERROR(cluster.Join(announce, now));
  next_pulse = std::min(next_pulse, now + options.worker_silence / kPulses);
  DispatchWaiting(now);
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
  if (!journey->dispatched()) return absl::OkStatus();
  KeepAlarm(*journey);
  if (const auto outcome = journey->TakeOutcome())
    cluster.predictor.OnFirstToken(journey->id(), journey->plan(), *outcome);
  const Plan& plan = journey->plan();
  if (worker == plan.prefill) {
    cluster.ledger.OnPrefillComputed(worker, journey->id());
    for (const Plan::Head& head : plan.heads)
      cluster.ledger.OnPrefillComputed(head.worker, journey->id());
  }
  if (worker == plan.decode)
    cluster.ledger.OnTokensLeft(worker, journey->id(), journey->tokens_left(),
                                cluster.members.page_tokens());
  if (journey->end_reason() || journey->Hopeless() != nullptr) unsettled.push_back(journey->id());
  return absl::OkStatus();
}

absl::Status Router::State::On(Incarnation worker, const PromptComputed& computed, absl::Time now) {
  Journey* const journey = Find(computed.request_id);
  if (journey == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(journey->OnPromptComputed(worker, computed, now));
  if (computed.epoch == journey->epoch() && journey->dispatched() && !cluster.prefixes.empty()) {
    const std::vector<uint64_t>& pages = journey->Pages(cluster.members.page_tokens());
    for (const CachedPrefix& hoped : journey->cached)
      if (hoped.worker == worker && !journey->plan().is_relay())
        cluster.prefixes.OnFound(hoped, pages, computed.reused_tokens);
    cluster.prefixes.OnComputed(journey->plan(), journey->Shape(), pages);
  }
  KeepAlarm(*journey);
  return absl::OkStatus();
}

absl::Status Router::State::On(Incarnation worker, const PromptLogprobs& told, absl::Time now) {
  Journey* const journey = Find(told.request_id);
  if (journey == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(journey->OnPromptLogprobs(worker, told, now));
  KeepAlarm(*journey);
  return absl::OkStatus();
}

absl::Status Router::State::On(Incarnation worker, const PartEnded& ended, absl::Time now) {
  Journey* const journey = Find(ended.request_id);
  const bool failed = ended.reason == EndReason::kFailed;
  if (failed && ended.fault == PartFault::kDraining) cluster.members.OnDraining(worker);
  if (journey != nullptr) {
    RETURN_IF_ERROR(journey->OnPartEnded(worker, ended, now));
    const bool of_attempt = ended.epoch == journey->epoch();
    if (failed && of_attempt && ended.fault == PartFault::kOwn) Blame(*journey, worker);
    RecordRecomputed(*journey, ended);
    if (of_attempt && journey->plan().IsHead(worker))
      cluster.ledger.OnPrefillComputed(worker, journey->id());
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
  if (journey == nullptr || !journey->dispatched() || journey->epoch() != notice.epoch)
    return absl::OkStatus();
  const Plan& plan = journey->plan();
  if (plan.IsHead(worker)) return absl::OkStatus();  // the tail tells of its own wait
  if (worker != plan.prefill && worker != plan.decode)
    return absl::InvalidArgumentError("no room for a request that was not given to this worker");
  if (plan.decode == 0 || cluster.members.Find(plan.decode) == nullptr) return absl::OkStatus();
  if (!journey->Broken().message.empty()) return absl::OkStatus();
  const absl::Duration wait = absl::Microseconds(notice.expected_wait_us);
  journey->OnNoRoom(wait, now);
  KeepAlarm(*journey);
  cluster.members.OnNoRoom(plan.decode, wait, now);
  Reassign(*journey, wait, now);
  return absl::OkStatus();
}

// Every other worker would read it as this one did: no further attempt.
void Router::State::EndHopeless(Journey& journey, const Journey::Verdict& verdict, absl::Time now) {
  if (verdict.fault == PartFault::kGrammar)
    return End(journey, EndReason::kFailed, absl::InvalidArgumentError(verdict.message), now);
  const absl::Status status = absl::InternalError(
      absl::StrFormat("request %s: worker %s cannot read the message about it: %s; run the same "
                      "version of baton everywhere",
                      journey.name(), journey.NameOf(verdict.worker), verdict.message));
  LogError("%s", std::string(status.message()));
  End(journey, EndReason::kFailed, status, now);
}

void Router::State::RecordRecomputed(const Journey& journey, const PartEnded& ended) {
  recomputed_tokens[static_cast<size_t>(journey.recompute_reason)] +=
      static_cast<uint64_t>(ended.recomputed_tokens);
}

void Router::State::LoseWorker(Incarnation worker, absl::Time now) {
  const WorkerAnnounce* const about = cluster.members.Find(worker);
  if (about == nullptr) return;
  const std::string name = about->name;
  std::vector<Journey*> affected;
  for (const RequestId id : cluster.Leave(worker)) affected.push_back(Find(id));
  std::sort(affected.begin(), affected.end(),
            [](const Journey* a, const Journey* b) { return a->sequence() < b->sequence(); });
  if (cluster.members.all().empty()) next_pulse = absl::InfiniteFuture();
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
    if (journey->end_reason()) {
      End(*journey, *journey->end_reason(), absl::OkStatus(), now);
    } else if (const Journey::Verdict* const verdict = journey->Hopeless(); verdict != nullptr) {
      EndHopeless(*journey, *verdict, now);
    } else if (journey->preempted()) {
      // Journey::kMaxPreemptions bounds how often this happens to a request.
      ++journey->preemptions;
      journey->recompute_reason = kFailoverCauses;
      Recall(*journey, now);
      TryDispatch(*journey, now);
    } else if (const Journey::Failure failure = journey->Broken(); !failure.message.empty()) {
      if (journey->MayHearMore(now) && MayMend(*journey, now))
        SetAlarm(*journey);
      else
        Retry(*journey, failure, now);
    }
  }
}

// --- ends -------------------------------------------------------------------------------------

void Router::State::End(Journey& journey, EndReason reason, const absl::Status& status,
                        absl::Time now) {
  const RequestId id = journey.id();
  effects.push_back(EmitEnd{
      .request_id = id, .reason = reason, .status = status, .timeline = journey.MakeTimeline(now)});
  if (journey.dispatched()) {
    for (const Incarnation worker : journey.OpenWorkers()) SendCancel(worker, id, journey.epoch());
    cluster.ledger.Release(id, journey.plan());
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
  for (const auto& [worker, member] : cluster.members.all()) Send(worker, DrainWorker{});
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
  if (now - next_pulse > silence / 2) cluster.members.ForgiveSilence(now);
  const std::vector<Incarnation> silent = cluster.members.NotHeardSince(now - silence);
  for (const Incarnation worker : silent)
    cluster.members.OnDraining(worker);  // no refuge for each other
  for (const Incarnation worker : silent) {
    effects.push_back(
        CloseWorker{.worker = worker,
                    .reason = absl::UnavailableError(absl::StrFormat(
                        "the worker was silent for more than %s", absl::FormatDuration(silence)))});
    LoseWorker(worker, now);
  }
  next_pulse = cluster.members.all().empty() ? absl::InfiniteFuture() : now + silence / kPulses;
}

void Router::State::OnAlarm(Journey& journey, absl::Time now) {
  if (!journey.lives()) {
    effects.push_back(
        EmitReleased{.request_id = journey.id(), .after = now - journey.ended(), .overdue = true});
    Forget(journey);
  } else if (journey.IsLate(now)) {
    End(journey, EndReason::kFailed, absl::DeadlineExceededError("the request's time is over"),
        now);
  } else if (!journey.dispatched()) {
    End(journey, EndReason::kFailed,
        absl::UnavailableError("its workers were lost and none came back"), now);
  } else if (const Journey::Failure failure = journey.Broken(); !failure.message.empty()) {
    Retry(journey, failure, now);
  } else if (journey.TakeLook(now)) {
    LookAtRelay(journey, now);
  } else {
    for (const Incarnation worker : journey.OpenWorkers()) Blame(journey, worker);
    Retry(journey,
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
  const auto& by_push = state_->relays_by_push;
  ClusterView view{.waiting = static_cast<int>(state_->waiting.size()),
                   .draining = state_->draining,
                   .ending = static_cast<int>(state_->ending.size()),
                   .failovers = state_->failovers,
                   .relays = std::accumulate(by_push.begin(), by_push.end(), uint64_t{0}),
                   .relays_in_rounds = state_->relays_in_rounds,
                   .relays_by_push = by_push,
                   .ranks_replaced = state_->ranks_replaced,
                   .sinks_replaced = state_->sinks_replaced,
                   .replaced_in_rounds = state_->replaced_in_rounds,
                   .recomputed_tokens = state_->recomputed_tokens};
  view.running = static_cast<int>(state_->n_living()) - view.waiting;
  view.kv_pages_promised = state_->cluster.ledger.pages_held();
  state_->cluster.members.FillView(&view);
  return view;
}

}  // namespace baton
