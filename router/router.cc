#include "router/router.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/request_limits.h"

namespace baton {
namespace {

// Looks at the workers' silence within the time it may last.
constexpr int kPulses = 4;
// A part sent this shortly before a load report came may not be in it yet.
constexpr absl::Duration kReportLag = absl::Milliseconds(50);

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

// Links whose rate the worker told, those that the router has given it KV to send over, and those
// that were tried in vain.
std::vector<LinkView> LinksOf(const Membership& members, const Membership::Member& member,
                              const Ledger::Account& account,
                              const std::vector<Incarnation>& broken_to) {
  std::map<Incarnation, LinkView> links;
  for (const LinkRate& rate : member.load.links)
    links[rate.peer].bytes_per_second = rate.bytes_per_second;
  for (const TokensTo& sending : account.sending)
    if (sending.tokens > 0) links[sending.worker].tokens_under_way = sending.tokens;
  for (const Incarnation peer : broken_to) links[peer].broken = true;
  std::vector<LinkView> known;
  for (auto& [peer, link] : links) {
    const WorkerAnnounce* const about = members.Find(peer);
    if (about == nullptr) continue;  // gone
    link.peer = about->name;
    known.push_back(std::move(link));
  }
  return known;
}

}  // namespace

Router::Router(const RouterOptions& options, const ClusterKey& key, uint64_t (*random)())
    : options_(options),
      id_(MakeRouterId(random())),
      cluster_(options_, key),
      dispatch_(key, random, &cluster_, &effects_) {}

void Router::SetLimits(int max_waiting, absl::Duration sizing_gap) {
  options_.max_waiting = max_waiting;
  options_.sizing_gap = sizing_gap;
  cluster_.sizing.SetGap(sizing_gap);
}

absl::StatusOr<RequestId> Router::Submit(GenerateRequest wanted, absl::Time now) {
  RETURN_IF_ERROR(CheckRequest(wanted));
  if (draining_) return absl::UnavailableError("the router is shutting down");
  if (cluster_.members.all().empty()) return absl::UnavailableError("no worker is connected yet");
  if (!cluster_.members.serves()) return absl::UnavailableError("all workers are shutting down");
  if (requests_.n_living() >= static_cast<size_t>(options_.max_waiting))
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%d requests are running or waiting: try again later", requests_.n_living()));
  const AttemptSpec spec{.n_prompt = static_cast<int32_t>(wanted.prompt.size()),
                         .max_tokens = wanted.max_tokens};
  if (!cluster_.predictor.Fits(spec))
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d prompt tokens and max_tokens %d do not fit into any worker's context or KV pages",
        spec.n_prompt, spec.max_tokens));
  const RequestId id = MakeRequestId(id_, next_sequence_);
  if (wanted.name.empty()) wanted.name = absl::StrFormat("%016x", id);
  Request& request = requests_.Add(
      std::make_unique<Request>(id, next_sequence_++, std::move(wanted), options_, now));
  dispatch_.Try(request, now);
  requests_.Update(request);
  return id;
}

void Router::Cancel(RequestId id, absl::Time now) {
  if (Request* const request = requests_.Find(id); request != nullptr && request->lives())
    End(*request, EndReason::kCancelled, now);
  Settle(now);
}

void Router::Drain() { draining_ = true; }

std::vector<RouterEffect> Router::TakeEffects() { return std::exchange(effects_, {}); }

ClusterView Router::View() const {
  ClusterView view = dispatch_.totals();
  view.waiting = static_cast<int>(requests_.n_in(RequestState::kWaiting));
  view.running = static_cast<int>(requests_.n_living()) - view.waiting;
  view.ending = static_cast<int>(requests_.n_in(RequestState::kEnding));
  view.draining = draining_;
  view.kv_pages_promised = cluster_.ledger.pages_held();
  view.recomputed_tokens = recomputed_tokens_;
  view.preemptions = preemptions_;
  view.page_tokens = cluster_.members.page_tokens();
  view.broken_links = cluster_.broken_links.n_tried_in_vain();
  view.desired_prefill = cluster_.sizing.prefill();
  view.desired_decode = cluster_.sizing.decode();
  cluster_.members.FillView(&view);
  return view;
}

std::vector<WorkerView> Router::Workers() const {
  std::vector<WorkerView> workers;
  for (const auto& [id, member] : cluster_.members.all()) {
    const Ledger::Account& account = cluster_.ledger.At(id);
    workers.push_back({.name = member.about.name,
                       .incarnation = id,
                       .role = member.about.role,
                       .draining = member.state == MemberState::kDraining,
                       .standing = member.stands(),
                       .requests = static_cast<int32_t>(account.parts.size()),
                       .prefill_queued_tokens = member.load.prefill_queued_tokens,
                       .decode_rows = member.load.decode_rows,
                       .decode_waiting = member.load.decode_waiting,
                       .max_batch = member.about.max_batch,
                       .pages_total = member.about.pages_total,
                       .pages_free = member.load.pages_free,
                       .pages_promised = account.pages_held,
                       .heard_at = member.heard_at,
                       .links = LinksOf(cluster_.members, member, account,
                                        cluster_.broken_links.TriedInVainFrom(id))});
  }
  return workers;
}

std::optional<RequestView> Router::Progress(RequestId id, absl::Time now) const {
  const Request* const request = requests_.Find(id);
  if (request == nullptr || !request->lives()) return std::nullopt;
  return RequestView{.waits = !request->dispatched(),
                     .n_tokens = static_cast<int32_t>(request->produced().size()),
                     .timeline = request->MakeTimeline(now)};
}

// --- reports ----------------------------------------------------------------------------------

absl::Status Router::OnReport(Incarnation worker, const WorkerReport& report, absl::Time now) {
  absl::Status status;
  const bool took_work =
      cluster_.members.Find(worker) != nullptr && cluster_.members.At(worker).takes_work();
  for (const WorkerEvent& event : report.events) {
    const bool is_announced = cluster_.members.Find(worker) != nullptr;
    status =
        is_announced || std::holds_alternative<WorkerAnnounce>(event)
            ? std::visit([&](const auto& value) { return On(worker, value, now); }, event)
            : absl::FailedPreconditionError("a worker must announce itself before anything else");
    if (!status.ok()) break;
  }
  if (status.ok())
    OnEngineTurn(worker, report.engine, took_work, now);
  else
    OnWorkerLost(worker, now);
  Settle(now);
  return status;
}

void Router::OnEngineTurn(Incarnation worker, const EngineTurn& turn, bool took_work,
                          absl::Time now) {
  if (cluster_.members.Find(worker) == nullptr) return;
  const Membership::Member& member = cluster_.members.At(worker);
  const bool stood = member.stands();
  cluster_.members.OnHeard(worker, turn, now);
  const auto what = [&turn] {
    return absl::StrFormat("its engine has been in one turn for %s, which should take %s",
                           absl::FormatDuration(absl::Microseconds(turn.age_us)),
                           absl::FormatDuration(absl::Microseconds(turn.expected_us)));
  };
  if (stood && !member.stands()) LogInfo("worker %s turns again", member.about.name);
  if (!stood && member.stands())
    LogWarn("worker %s gets nothing new: %s", member.about.name, what());
  if (!took_work && member.takes_work()) {
    for (Request* const request : requests_.In(RequestState::kWaiting)) {
      dispatch_.Try(*request, now);
      requests_.Update(*request);
    }
  }
  // Without parts it stays: it would dial again, and stand still as before.
  if (member.turned >= 2 * member.patience && !cluster_.ledger.At(worker).parts.empty()) {
    effects_.push_back(CloseWorker{.worker = worker, .reason = absl::UnavailableError(what())});
    OnWorkerLost(worker, now);
  }
}

absl::Status Router::On(Incarnation worker, const WorkerAnnounce& announce, absl::Time now) {
  if (announce.incarnation != worker)
    return absl::InvalidArgumentError(
        absl::StrFormat("worker %s announced another incarnation than it proved", announce.name));
  RETURN_IF_ERROR(cluster_.Join(announce, now));
  next_pulse_ = std::min(next_pulse_, now + options_.worker_silence / kPulses);
  return absl::OkStatus();
}

absl::Status Router::On(Incarnation worker, const WorkerLoad& load, absl::Time now) {
  RETURN_IF_ERROR(cluster_.members.CheckLoad(worker, load));
  cluster_.members.OnLoad(worker, load, now);
  cluster_.ledger.OnQueued(worker, load.prefill_queued_tokens, now - kReportLag);
  cluster_.sizing.Update(cluster_.members.Typical(), now);
  return absl::OkStatus();
}

absl::Status Router::On(Incarnation worker, const TokenOut& token, absl::Time now) {
  Request* const request = requests_.Find(token.request_id);
  if (request == nullptr) return absl::OkStatus();  // ended
  RETURN_IF_ERROR(request->OnToken(worker, token, now, &effects_));
  if (!request->dispatched()) return absl::OkStatus();
  requests_.KeepAlarm(*request);
  Attempt& attempt = *request->attempt();
  const Plan& plan = attempt.plan();
  if (const std::optional<Attempt::Outcome> outcome = attempt.TakeOutcome()) {
    if (!outcome->found_more) cluster_.predictor.OnFirstToken(plan, attempt.spec(), outcome->ratio);
    if (outcome->is_as_expected) cluster_.predictor.OnUsualFirstToken(plan, outcome->ratio);
  }
  const int32_t begin = attempt.spec().n_prompt;
  // KV is where the first token, or the first one of the decode worker, was computed.
  if (token.position <= begin + 1)
    for (const auto& [ticket, hop] : attempt.order().handoffs)
      if (token.position == begin + (hop.second == plan.decode ? 1 : 0))
        cluster_.broken_links.OnWhole(hop.first, hop.second);
  if (worker == plan.prefill() && token.position == begin)
    for (const Incarnation rank : plan.PrefillWorkers())
      cluster_.ledger.OnPrefillComputed(rank, request->id());
  if (worker == plan.decode) {
    if (token.position > begin) cluster_.under_way.Leave(request->id());  // its KV is there
    cluster_.ledger.OnTokensLeft(worker, request->id(), request->tokens_left());
  }
  if (request->end_reason() || !attempt.Hopeless().ok()) unsettled_.push_back(request->id());
  return absl::OkStatus();
}

absl::Status Router::On(Incarnation worker, const PromptComputed& computed, absl::Time now) {
  Request* const request = requests_.Find(computed.request_id);
  if (request == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(Attempt* const attempt, request->Reported("the prompt", computed.epoch));
  if (attempt == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(attempt->OnPromptComputed(worker, computed, now));
  requests_.KeepAlarm(*request);
  return absl::OkStatus();
}

absl::Status Router::On(Incarnation worker, const PromptLogprobs& told, absl::Time now) {
  Request* const request = requests_.Find(told.request_id);
  if (request == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(Attempt* const attempt, request->Reported("log-probabilities", told.epoch));
  return attempt == nullptr ? absl::OkStatus() : attempt->OnPromptLogprobs(worker, told, now);
}

absl::Status Router::On(Incarnation worker, const PartEnded& ended, absl::Time now) {
  const bool failed = ended.reason == EndReason::kFailed;
  if (failed && ended.fault == PartFault::kDraining) cluster_.members.OnDraining(worker);
  Request* const request = requests_.Find(ended.request_id);
  if (request == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(request->Reported("the end", ended.epoch).status());
  const bool of_last = ended.epoch == request->epoch();
  if (Attempt* const attempt = request->attempt(); of_last && attempt != nullptr) {
    RETURN_IF_ERROR(attempt->OnPartEnded(worker, ended, now));
    if (attempt->plan().IsHead(worker)) cluster_.ledger.OnPrefillComputed(worker, request->id());
  }
  if (failed && of_last && ended.fault == PartFault::kOwn) request->failures.Blame(worker);
  recomputed_tokens_[static_cast<size_t>(request->recompute_reason)] +=
      static_cast<uint64_t>(ended.recomputed_tokens);
  if (request->lives()) {
    requests_.KeepAlarm(*request);
    unsettled_.push_back(request->id());
  } else if (!request->has_open_parts()) {
    // A lost worker never tells when it let go, so no time is told.
    const std::vector<Incarnation> workers = request->attempt()->plan().Workers();
    if (std::all_of(workers.begin(), workers.end(),
                    [this](Incarnation each) { return cluster_.members.Find(each) != nullptr; }))
      effects_.push_back(
          EmitReleased{.request_id = request->id(), .after = now - request->ended()});
    requests_.Forget(*request);
  }
  return absl::OkStatus();
}

absl::Status Router::On(Incarnation worker, const NoRoomNotice& notice, absl::Time now) {
  Request* const request = requests_.Find(notice.request_id);
  if (request == nullptr || !request->dispatched() || request->epoch() != notice.epoch)
    return absl::OkStatus();
  Attempt& attempt = *request->attempt();
  const Plan& plan = attempt.plan();
  if (plan.IsHead(worker)) return absl::OkStatus();  // the tail tells of its own wait
  if (worker != plan.prefill() && worker != plan.decode)
    return absl::InvalidArgumentError("no room for a request that was not given to this worker");
  if (cluster_.members.Find(plan.decode) == nullptr || !attempt.Broken().message.empty())
    return absl::OkStatus();
  const absl::Duration wait = absl::Microseconds(notice.expected_wait_us);
  attempt.OnNoRoom(wait, now);
  cluster_.members.OnNoRoom(plan.decode,
                            attempt.spec().PromisePages(cluster_.members.page_tokens()), wait, now);
  if (dispatch_.Reassign(*request, wait, now))
    requests_.Update(*request);
  else
    requests_.KeepAlarm(*request);
  return absl::OkStatus();
}

absl::Status Router::On(Incarnation worker, const CachedPages& told, absl::Time) {
  ASSIGN_OR_RETURN(const bool lacks_some, cluster_.prefixes.OnPages(worker, told));
  if (lacks_some) effects_.push_back(SendToWorker{.worker = worker, .message = TellPages{}});
  return absl::OkStatus();
}

void Router::OnWorkerLost(Incarnation worker, absl::Time now) {
  if (cluster_.members.Find(worker) == nullptr) return;
  std::vector<Request*> affected;
  for (const RequestId id : cluster_.Leave(worker)) affected.push_back(requests_.Find(id));
  std::sort(affected.begin(), affected.end(),
            [](const Request* a, const Request* b) { return a->sequence() < b->sequence(); });
  if (cluster_.members.all().empty()) next_pulse_ = absl::InfiniteFuture();
  for (Request* const request : affected) {
    request->attempt()->OnWorkerLost(worker);
    unsettled_.push_back(request->id());
  }
  for (Request* const request : requests_.In(RequestState::kEnding)) {
    request->attempt()->OnWorkerLost(worker);
    if (!request->has_open_parts()) requests_.Forget(*request);
  }
  Settle(now);
}

void Router::Settle(absl::Time now) {
  for (const RequestId id : std::exchange(unsettled_, {}))
    if (Request* const request = requests_.Find(id); request != nullptr && request->lives())
      SettleOne(*request, now);
  for (const RequestId id : cluster_.under_way.TakeFreed()) {
    Request* const follower = requests_.Find(id);
    if (follower == nullptr || follower->state() != RequestState::kWaiting) continue;
    dispatch_.Try(*follower, now);
    requests_.Update(*follower);
  }
}

void Router::SettleOne(Request& request, absl::Time now) {
  if (request.end_reason()) return End(request, *request.end_reason(), now);
  if (!request.dispatched()) return;
  Attempt& attempt = *request.attempt();
  if (const absl::Status hopeless = attempt.Hopeless(); !hopeless.ok()) {
    if (absl::IsInternal(hopeless)) LogError("%s", std::string(hopeless.message()));
    return End(request, hopeless, now);
  }
  const AttemptFailure failure = attempt.Broken();
  if (attempt.preempted()) {
    ++preemptions_;
    ++request.preemptions;  // Request::kMaxPreemptions bounds how often this happens to a request
    dispatch_.Redo(request, now);
    requests_.Update(request);
  } else if (!failure.message.empty()) {
    // A decode part whose handoff was given up: the prefill part tells why, perhaps a verdict.
    const std::vector<Incarnation> open = attempt.OpenWorkers();
    const bool source_is_open =
        failure.worker == attempt.plan().decode &&
        std::find(open.begin(), open.end(), attempt.plan().prefill()) != open.end();
    if (attempt.fault().MayHearMore(now) && (source_is_open || dispatch_.MayMend(request, now)))
      requests_.Update(request);
    else
      Retry(request, failure, now);
  }
}

// --- ends -------------------------------------------------------------------------------------

void Router::Retry(Request& request, const AttemptFailure& failure, absl::Time now) {
  const absl::Status status = dispatch_.Retry(request, failure, now);
  if (!status.ok()) {
    // The log gets the text of the worker, the client what kind of failure it is.
    LogWarn("request %s: %s; the last time: %s", request.wanted().name,
            std::string(status.message()), failure.message);
    return End(request, status, now);
  }
  requests_.Update(request);
}

void Router::End(Request& request, const absl::StatusOr<EndReason>& how, absl::Time now) {
  Timeline timeline = request.MakeTimeline(now);
  if (const auto n_made = static_cast<int32_t>(request.produced().size()); how.ok() && n_made > 0) {
    cluster_.ledger.OnEnded(n_made);
    dispatch_.NoteTails(request);
    if (request.dispatched() && request.epoch() == 1 && n_made > 1)
      cluster_.predictor.OnGaps(
          request.attempt()->plan(),
          absl::ToDoubleSeconds((timeline.total - timeline.ttft) / (n_made - 1)));
    cluster_.sizing.OnEnded(static_cast<int32_t>(request.wanted().prompt.size()), n_made, now);
  }
  effects_.push_back(EmitEnd{.request_id = request.id(),
                             .reason = how.value_or(EndReason::kFailed),
                             .status = how.status(),
                             .timeline = std::move(timeline)});
  if (request.dispatched()) dispatch_.Cancel(request);
  request.End(now);
  if (request.has_open_parts())
    requests_.Update(request);
  else
    requests_.Forget(request);
}

// --- time -------------------------------------------------------------------------------------

void Router::OnTime(absl::Time now) {
  if (now >= next_pulse_) LoseSilentWorkers(now);
  while (Request* const request = requests_.TakeDue(now)) OnAlarm(*request, now);
  Settle(now);
}

absl::Time Router::NextDeadline() const { return std::min(requests_.NextAlarm(), next_pulse_); }

void Router::LoseSilentWorkers(absl::Time now) {
  const absl::Duration silence = options_.worker_silence;
  if (now - next_pulse_ > silence / 2) cluster_.members.ForgiveSilence(now);
  const std::vector<Incarnation> silent = cluster_.members.NotHeardSince(now - silence);
  // No refuge for each other.
  for (const Incarnation worker : silent) cluster_.members.OnDraining(worker);
  const auto reason = absl::UnavailableError(
      absl::StrFormat("the worker was silent for more than %s", absl::FormatDuration(silence)));
  for (const Incarnation worker : silent) {
    effects_.push_back(CloseWorker{.worker = worker, .reason = reason});
    OnWorkerLost(worker, now);
  }
  next_pulse_ = cluster_.members.all().empty() ? absl::InfiniteFuture() : now + silence / kPulses;
}

void Router::OnAlarm(Request& request, absl::Time now) {
  if (!request.lives()) {
    effects_.push_back(
        EmitReleased{.request_id = request.id(), .after = now - request.ended(), .overdue = true});
    requests_.Forget(request);
  } else if (request.IsLate(now)) {
    End(request, absl::DeadlineExceededError("the request's time is over"), now);
  } else if (request.follows_until) {  // in vain
    request.may_follow = false;
    dispatch_.Try(request, now);
    requests_.Update(request);
  } else if (!request.dispatched()) {
    End(request, absl::UnavailableError("its workers were lost and none came back"), now);
  } else if (const AttemptFailure failure = request.attempt()->Broken(); !failure.message.empty()) {
    Retry(request, failure, now);
  } else if (request.attempt()->IsLate(now)) {
    const std::optional<AttemptFailure> late = dispatch_.GiveUpLate(request, now);
    late ? Retry(request, *late, now) : requests_.Update(request);
  } else {
    for (const Incarnation worker : request.attempt()->OpenWorkers())
      request.failures.Blame(worker);
    Retry(request,
          {.cause = FailoverCause::kStuck,
           .message = absl::StrFormat("its workers gave no sign of it for more than %s",
                                      absl::FormatDuration(options_.attempt_silence))},
          now);
  }
}

}  // namespace baton
