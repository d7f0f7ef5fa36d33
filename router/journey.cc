#include "router/journey.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "router/relay_watch.h"

namespace baton {
namespace {

// An attempt that brought so many tokens died of something else than its request.
constexpr size_t kGotOn = 8;
// A late relay is looked at again after a quarter of its life so far.
constexpr int kLooksPerLife = 4;
constexpr absl::Duration kMinLook = absl::Milliseconds(100);
// Factor by which a prediction may be off before an attempt counts as stuck.
constexpr double kPredictionSlack = 20;

// Error: a worker tells of an attempt after the running one.
absl::Status CheckEpoch(Epoch running, const char* what, Epoch told) {
  if (told <= running) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s of attempt %d of a request that was dispatched %d times", what, told, running));
}

FailoverCause CauseOf(const PartEnded& ended) {
  if (ended.reason != EndReason::kFailed) return FailoverCause::kPartFailed;
  switch (ended.fault) {
    case PartFault::kHandoff:
    case PartFault::kInflow:
    case PartFault::kPush:
    case PartFault::kRing:
    case PartFault::kPeer:
      return FailoverCause::kHandoffFailed;
    case PartFault::kDraining:
      return FailoverCause::kDraining;
    case PartFault::kOwn:
    case PartFault::kUnreadable:
    case PartFault::kGrammar:
    case PartFault::kPages:
      break;
  }
  return FailoverCause::kPartFailed;
}

constexpr StateRow kStates[] = {
    {"waiting", "worker_wait, or the request's timeout", "ending, with an error"},
    {"prefilling", "attempt_silence, or the request's timeout",
     "waiting: dispatched anew; ending, with an error, after max_attempts or when it is late"},
    {"streaming", "attempt_silence, or the request's timeout",
     "waiting: dispatched anew; ending, with an error, after max_attempts or when it is late"},
    {"ending", "end_wait", "over: forgotten, counted as overdue"},
    {"over", "", ""},
};
constexpr TransitionRow kTransitions[] = {
    Move(JourneyState::kWaiting, JourneyState::kPrefilling),
    Move(JourneyState::kPrefilling, JourneyState::kStreaming),
    Move(JourneyState::kPrefilling, JourneyState::kWaiting),
    Move(JourneyState::kStreaming, JourneyState::kWaiting),
    Move(JourneyState::kWaiting, JourneyState::kEnding),
    Move(JourneyState::kPrefilling, JourneyState::kEnding),
    Move(JourneyState::kStreaming, JourneyState::kEnding),
    Move(JourneyState::kEnding, JourneyState::kOver),
};

}  // namespace

const MachineTable& JourneyTable() {
  static constexpr MachineTable kTable{.machine = "journey",
                                       .owner = "Router, front thread",
                                       .states = kStates,
                                       .transitions = kTransitions};
  return kTable;
}

Journey::Journey(RequestId id, uint64_t sequence, GenerateRequest request,
                 const RouterOptions& options, absl::Time now)
    : id_(id),
      sequence_(sequence),
      request_(std::move(request)),
      options_(options),
      state_(JourneyTable(), options.transitions),
      submitted_(now),
      deadline_(now + request_.timeout),
      waiting_since_(now) {}

absl::Time Journey::Alarm() const {
  switch (state()) {
    case JourneyState::kWaiting:
      return std::min(deadline_, waiting_since_ + options_.worker_wait);
    case JourneyState::kPrefilling:
    case JourneyState::kStreaming:
      if (failure_.cause == FailoverCause::kHandoffFailed && !failure_.message.empty())
        return std::min({deadline_, silent_until_, failed_at_ + options_.blame_wait});
      return std::min({deadline_, silent_until_, look_at_});
    case JourneyState::kEnding:
      return ended_ + options_.end_wait;
    case JourneyState::kOver:
      break;
  }
  return absl::InfiniteFuture();
}

const std::vector<uint64_t>& Journey::Pages(int32_t page_tokens) {
  if (!pages_) pages_ = PageHashes(request_.prompt, page_tokens, request_.cache_salt);
  return *pages_;
}

AttemptSpec Journey::Shape() const {
  const size_t done = dispatched() ? produced_before_ : produced_.size();
  return {.n_prompt = static_cast<int32_t>(request_.prompt.size() + done),
          .max_tokens = request_.max_tokens - static_cast<int32_t>(done),
          .covered = preemptions >= kMaxPreemptions,
          .kept_at = is_scored() ? 0 : kept_at_,
          .kept_tokens = is_scored() ? 0 : kept_tokens_,
          .cached = cached,
          .may_relay = may_relay && !is_scored()};
}

void Journey::Dispatch(const Plan& plan, const PlanNames& names, absl::Time now) {
  BATON_CHECK(!end_reason_);
  state_ = JourneyState::kPrefilling;
  ++epoch_;
  plan_ = plan;
  names_ = names;
  silent_until_ =
      now + options_.attempt_silence + kPredictionSlack * absl::Milliseconds(plan.predicted_ms);
  produced_before_ = produced_.size();
  dispatched_at_ = now;
  look_at_ = plan.is_relay() && plan.first_token_ms > 0
                 ? now + LateAfter(absl::Milliseconds(plan.first_token_ms))
                 : absl::InfiniteFuture();
  surprised_ = is_scored();  // scoring is in no prediction
  outcome_.reset();
  prefill_open_ = true;
  decode_open_ = plan.decode != 0;
  open_heads_ = plan.HeadWorkers();
  decode_spoke_ = attempt_spoke_ = preempted_ = false;
  failure_ = {};
  verdict_.reset();
  broken_hops_.clear();
  scored_.Begin(is_scored() ? request_.prompt.size() - 1 : 0, request_.prompt_logprobs);
  timeline_.router_queue += now - waiting_since_;
  timeline_.prefill_worker = names.prefill;
  timeline_.decode_worker = names.decode;
  timeline_.prefill_heads = absl::StrJoin(names.heads, ",");
  timeline_.attempts = static_cast<int>(epoch_);
  timeline_.slices.clear();
  std::vector<Incarnation> computing = plan.HeadWorkers();
  computing.push_back(plan.prefill);
  for (const Incarnation worker : computing)
    timeline_.slices.push_back(static_cast<int32_t>(plan.PrefillWorkAt(worker, Shape()).tokens));
  timeline_.rounds = static_cast<int>(plan.n_rounds());
  timeline_.predicted = absl::Milliseconds(plan.first_token_ms);
  timeline_.push = plan.push;
  timeline_.took = absl::ZeroDuration();
}

const std::string& Journey::NameOf(Incarnation worker) const {
  const std::vector<Incarnation> heads = plan_.HeadWorkers();
  const auto head = std::find(heads.begin(), heads.end(), worker);
  if (head != heads.end()) return names_.heads[static_cast<size_t>(head - heads.begin())];
  return worker == plan_.prefill ? names_.prefill : names_.decode;
}

void Journey::Recall(absl::Time now) {
  state_ = JourneyState::kWaiting;
  waiting_since_ = now;
  prefill_open_ = decode_open_ = false;
  open_heads_.clear();
  early_.clear();
}

void Journey::End(absl::Time now) {
  state_ = JourneyState::kEnding;
  ended_ = now;
  request_.prompt = std::vector<int32_t>();  // = {} would keep the memory
  scored_.Take();
  early_.clear();
}

PrefillRequest Journey::MakePrefillRequest(const Ticket& ticket, const TransferPeer& sink,
                                           const Inflow& inflow) const {
  PrefillRequest out{
      .request_id = id_,
      .epoch = epoch_,
      .ticket = ticket,
      .sink = sink,
      .tokens = request_.prompt,
      .n_generated = static_cast<int32_t>(produced_.size()),
      .sampling = request_.sampling,
      .stop_tokens = request_.stop_tokens,
      .want_digests = request_.want_digests,
      .prompt_logprobs = request_.prompt_logprobs,
      .cache_salt = request_.cache_salt,
      .max_total_tokens = static_cast<int32_t>(request_.prompt.size()) + request_.max_tokens,
      .inflow = inflow};
  out.tokens.insert(out.tokens.end(), produced_.begin(), produced_.end());
  return out;
}

PrefillRequest Journey::MakeHeadRequest(const RelayRound& slice) const {
  PrefillRequest out = MakePrefillRequest(slice.ticket, slice.sink, slice.inflow);
  out.tokens.resize(static_cast<size_t>(slice.tokens));
  // A head draws no token.
  out.n_generated = 0;
  out.sampling = {};
  out.stop_tokens.clear();
  out.push = slice.push;
  out.is_head = true;
  return out;
}

DecodeRequest Journey::MakeDecodeRequest(const TicketId& ticket_id) const {
  const AttemptSpec shape = Shape();
  DecodeRequest out{.request_id = id_,
                    .epoch = epoch_,
                    .ticket_id = ticket_id,
                    .n_prompt = shape.n_prompt,
                    .max_tokens = shape.max_tokens,
                    .n_generated = static_cast<int32_t>(produced_before_),
                    .sampling = request_.sampling,
                    .stop_tokens = request_.stop_tokens,
                    .want_digests = request_.want_digests};
  if (NeedsHistory(out.sampling, out.n_generated)) {
    out.history = request_.prompt;
    out.history.insert(out.history.end(), produced_.begin(),
                       produced_.begin() + static_cast<std::ptrdiff_t>(produced_before_));
  }
  return out;
}

std::vector<Incarnation> Journey::OpenWorkers() const {
  std::vector<Incarnation> workers;
  if (decode_open_) workers.push_back(plan_.decode);
  if (prefill_open_ && !(decode_open_ && plan_.prefill == plan_.decode))
    workers.push_back(plan_.prefill);
  workers.insert(workers.end(), open_heads_.begin(), open_heads_.end());
  return workers;
}

absl::Status Journey::OnToken(Incarnation from, const TokenOut& token, absl::Time now,
                              std::vector<RouterEffect>* effects) {
  RETURN_IF_ERROR(CheckEpoch(epoch_, "a token", token.epoch));
  if (token.epoch < epoch_ || !dispatched() || end_reason_) return absl::OkStatus();
  if (from != plan_.prefill && from != plan_.decode)
    return absl::InvalidArgumentError("a token of a request that was not given to this worker");
  const AttemptSpec shape = Shape();
  if (token.position < shape.n_prompt || token.position >= shape.n_prompt + shape.max_tokens)
    return absl::InvalidArgumentError(
        absl::StrFormat("a token at position %d of an attempt that covers [%d, %d)", token.position,
                        shape.n_prompt, shape.n_prompt + shape.max_tokens));
  attempt_spoke_ = true;
  look_at_ = absl::InfiniteFuture();
  silent_until_ = now + options_.attempt_silence;
  if (from == plan_.decode && token.position > shape.n_prompt) decode_spoke_ = true;
  const auto next = [this] {
    return static_cast<int32_t>(request_.prompt.size() + produced_.size());
  };
  if (token.position < next()) return absl::OkStatus();
  if (token.position > next()) {
    early_.emplace(token.position, token);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(scored_.CheckWhole());
  Emit(token, now, effects);
  while (!end_reason_ && !early_.empty() && early_.begin()->first == next()) {
    Emit(early_.begin()->second, now, effects);
    early_.erase(early_.begin());
  }
  return absl::OkStatus();
}

void Journey::RecordComputed() {
  kept_at_ = plan_.prefill;
  kept_tokens_ = static_cast<int32_t>(request_.prompt.size() + produced_before_);
}

void Journey::RecordFirstSlice() {
  kept_at_ = plan_.heads.front().worker;
  kept_tokens_ = plan_.SliceEnds(Shape()).front();
}

bool Journey::TakeLook(absl::Time now) {
  if (now < look_at_) return false;
  look_at_ = now + std::max(kMinLook, (now - dispatched_at_) / kLooksPerLife);
  return true;
}

double Journey::Lateness(absl::Time now) const {
  return std::max(1.0, absl::ToDoubleMilliseconds(now - dispatched_at_) / plan_.first_token_ms);
}

void Journey::RecordFirstToken(absl::Time now) {
  timeline_.took = now - dispatched_at_;
  if (surprised_ || plan_.first_token_ms <= 0) return;
  outcome_ = {.n_tokens = Shape().n_prompt,
              .n_ranks = static_cast<int>(plan_.heads.size()) + 1,
              .predicted = timeline_.predicted,
              .actual = timeline_.took,
              .alone = absl::Milliseconds(plan_.alone_ms)};
}

std::optional<FirstTokenOutcome> Journey::TakeOutcome() {
  return std::exchange(outcome_, std::nullopt);
}

void Journey::Emit(const TokenOut& token, absl::Time now, std::vector<RouterEffect>* effects) {
  if (produced_.empty()) timeline_.ttft = now - submitted_;
  if (state_ == JourneyState::kPrefilling) {
    RecordFirstToken(now);
    RecordComputed();
  }
  state_ = JourneyState::kStreaming;
  effects->push_back(EmitToken{.request_id = id_,
                               .index = static_cast<int32_t>(produced_.size()),
                               .token = token.token,
                               .logprob = token.logprob,
                               .digest = token.digest,
                               .logprobs = token.logprobs,
                               .prompt_logprobs = scored_.Take()});
  request_.prompt_logprobs = -1;  // told: later attempts compute without
  produced_.push_back(token.token);
  const std::vector<int32_t>& stops = request_.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token.token) != stops.end()) {
    end_reason_ = EndReason::kStopToken;
  } else if (tokens_left() == 0) {
    end_reason_ = EndReason::kLength;
  }
}

absl::Status Journey::OnPromptComputed(Incarnation from, const PromptComputed& computed,
                                       absl::Time now) {
  RETURN_IF_ERROR(CheckEpoch(epoch_, "the prompt", computed.epoch));
  if (computed.epoch < epoch_ || !dispatched() || !prefill_open_) return absl::OkStatus();
  if (from != plan_.prefill)
    return absl::InvalidArgumentError("the prompt of a request that was not given to this worker");
  const AttemptSpec shape = Shape();
  const bool hoped = !plan_.is_relay() && shape.PrefillTokensAt(from) < shape.n_prompt;
  if (computed.reused_tokens > 0 || hoped) surprised_ = true;
  if (epoch_ == 1) timeline_.reused_tokens += computed.reused_tokens;
  RecordComputed();
  silent_until_ = now + options_.attempt_silence;
  timeline_.prefill_queue += absl::Microseconds(computed.queue_us);
  timeline_.prefill += absl::Microseconds(computed.compute_us);
  return absl::OkStatus();
}

absl::Status Journey::OnPromptLogprobs(Incarnation from, const PromptLogprobs& told,
                                       absl::Time now) {
  RETURN_IF_ERROR(CheckEpoch(epoch_, "log-probabilities", told.epoch));
  if (told.epoch < epoch_ || !dispatched() || !prefill_open_) return absl::OkStatus();
  if (from != plan_.prefill)
    return absl::InvalidArgumentError("the prompt of a request that was not given to this worker");
  RETURN_IF_ERROR(scored_.Add(told));
  // The rest of the prompt is still to be computed: the time predicted for it stays.
  silent_until_ = std::max(silent_until_, now + options_.attempt_silence);
  return absl::OkStatus();
}

absl::Status Journey::OnPartEnded(Incarnation from, const PartEnded& ended, absl::Time now) {
  RETURN_IF_ERROR(CheckEpoch(epoch_, "the end", ended.epoch));
  if (ended.epoch < epoch_ || state_ == JourneyState::kWaiting) return absl::OkStatus();
  const bool of_head = ended.was_prefill && plan_.IsHead(from);
  if (!of_head && from != (ended.was_prefill ? plan_.prefill : plan_.decode))
    return absl::InvalidArgumentError("the end of a part that was not given to this worker");
  if (ended.was_prefill && ended.reason == EndReason::kPreempted)
    return absl::InvalidArgumentError("a prefill part does not end preempted");
  if (of_head) {
    if (std::erase(open_heads_, from) == 0) return absl::OkStatus();
  } else {
    bool& open = ended.was_prefill ? prefill_open_ : decode_open_;
    if (!open) return absl::OkStatus();
    open = false;
  }
  if (!lives()) return absl::OkStatus();
  silent_until_ = now + options_.attempt_silence;
  if (!ended.was_prefill) {
    timeline_.transfer += absl::Microseconds(ended.transfer_us);
    timeline_.decode_queue += absl::Microseconds(ended.queue_us);
    timeline_.decode += absl::Microseconds(ended.compute_us);
  }
  if (of_head && epoch_ == 1) timeline_.reused_tokens += ended.reused_tokens;
  if (ended.reason == EndReason::kPreempted) preempted_ = true;
  if (ended.reason == EndReason::kFailed && IsOfRequest(ended.fault)) {
    verdict_ = {from, ended.fault, ended.message, ended.was_prefill};
    return absl::OkStatus();
  }
  const bool needed = of_head ? !attempt_spoke_ : !ended.was_prefill || needs_prefill();
  if (needed && (ended.reason == EndReason::kFailed || ended.reason == EndReason::kCancelled)) {
    if (failure_.message.empty()) failed_at_ = now;
    if (ended.reason == EndReason::kFailed && ended.was_prefill) RecordBroken(from, ended.fault);
    failure_ = {.cause = CauseOf(ended),
                .message = ended.message.empty()
                               ? absl::StrCat(ended.was_prefill ? "prefill" : "decode",
                                              " was given up by its worker")
                               : ended.message,
                .worker = from};
  }
  return absl::OkStatus();
}

// Tokens of the decode worker may have come before the first one, which is the prefill worker's.
const Journey::Verdict* Journey::Hopeless() const {
  if (!verdict_ || end_reason_) return nullptr;
  const bool may_miss_tokens = verdict_->fault == PartFault::kGrammar && !verdict_->of_prefill;
  const bool misses_tokens = may_miss_tokens && !(first_of_attempt_emitted() && early_.empty());
  return misses_tokens ? nullptr : &*verdict_;
}

void Journey::RecordBroken(Incarnation from, PartFault fault) {
  size_t rank = 0;  // in the order of slices
  while (rank < plan_.heads.size() && plan_.heads[rank].worker != from) ++rank;
  const bool is_tail = rank == plan_.heads.size();
  std::pair<Incarnation, Incarnation> hop;
  if (fault == PartFault::kPush || (fault == PartFault::kHandoff && is_tail))
    hop = {from, plan_.decode};
  else if (fault == PartFault::kHandoff || fault == PartFault::kRing)
    hop = {from, plan_.WorkerOf(rank + 1)};
  else if (fault == PartFault::kInflow)
    hop = {plan_.WorkerOf(rank + plan_.heads.size()), from};
  else
    return;
  if (std::find(broken_hops_.begin(), broken_hops_.end(), hop) == broken_hops_.end())
    broken_hops_.push_back(hop);
}

Incarnation Journey::Culprit() const {
  if (failure_.cause != FailoverCause::kHandoffFailed) return failure_.worker;
  std::vector<Incarnation> ends;
  for (const auto& [source, sink] : broken_hops_)
    for (const Incarnation end : {sink, source}) {
      if (std::find(ends.begin(), ends.end(), end) != ends.end()) return end;
      ends.push_back(end);
    }
  return ends.empty() ? 0 : ends.front();
}

bool Journey::MayHearMore(absl::Time now) const {
  return failure_.cause == FailoverCause::kHandoffFailed && broken_hops_.size() < 2 &&
         now < failed_at_ + options_.blame_wait;
}

void Journey::OnNoRoom(absl::Duration expected_wait, absl::Time now) {
  surprised_ = true;
  silent_until_ = now + options_.attempt_silence + kPredictionSlack * expected_wait;
}

void Journey::OnWorkerLost(Incarnation worker, const std::string& name) {
  const auto lost = [&](const char* role) {
    return Failure{.cause = FailoverCause::kWorkerLost,
                   .message = absl::StrFormat("%s worker %s was lost", role, name),
                   .worker = worker};
  };
  if (std::erase(open_heads_, worker) > 0 && !attempt_spoke_) failure_ = lost("head");
  if (prefill_open_ && plan_.prefill == worker) {
    prefill_open_ = false;
    if (needs_prefill()) failure_ = lost("prefill");
  }
  if (decode_open_ && plan_.decode == worker) {
    decode_open_ = false;
    failure_ = lost("decode");
  }
}

Journey::Failure Journey::Broken() const {
  if (!dispatched() || end_reason_) return {};
  if (!failure_.message.empty()) return failure_;
  if (!first_of_attempt_emitted() && !prefill_open_)
    return {.message = absl::StrFormat("prefill worker %s ended without a first token",
                                       timeline_.prefill_worker)};
  if (first_of_attempt_emitted() && !decode_open_)
    return {.message = absl::StrFormat("decode worker %s ended %d tokens early",
                                       timeline_.decode_worker, tokens_left())};
  return {};
}

bool Journey::attempt_got_on() const { return produced_.size() - produced_before_ >= kGotOn; }

Timeline Journey::MakeTimeline(absl::Time now) const {
  Timeline timeline = timeline_;
  if (state_ == JourneyState::kWaiting) timeline.router_queue += now - waiting_since_;
  timeline.total = now - submitted_;
  return timeline;
}

}  // namespace baton
