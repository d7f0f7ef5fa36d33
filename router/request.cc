#include "router/request.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {
namespace {

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
    Move(RequestState::kWaiting, RequestState::kPrefilling),
    Move(RequestState::kPrefilling, RequestState::kStreaming),
    Move(RequestState::kPrefilling, RequestState::kWaiting),
    Move(RequestState::kStreaming, RequestState::kWaiting),
    Move(RequestState::kWaiting, RequestState::kEnding),
    Move(RequestState::kPrefilling, RequestState::kEnding),
    Move(RequestState::kStreaming, RequestState::kEnding),
    Move(RequestState::kEnding, RequestState::kOver),
};

}  // namespace

const MachineTable& RequestTable() {
  static constexpr MachineTable kTable{.machine = "request",
                                       .owner = "Router, front thread",
                                       .states = kStates,
                                       .transitions = kTransitions};
  return kTable;
}

Request::Request(RequestId id, uint64_t sequence, GenerateRequest wanted,
                 const RouterOptions& options, absl::Time now)
    : failures(options),
      id_(id),
      sequence_(sequence),
      wanted_(std::move(wanted)),
      options_(options),
      state_(RequestTable(), options.transitions),
      submitted_(now),
      deadline_(now + wanted_.timeout),
      waiting_since_(now) {}

absl::Time Request::Alarm() const {
  switch (state()) {
    case RequestState::kWaiting:
      return std::min(deadline_, follows_until.value_or(waiting_since_ + options_.worker_wait));
    case RequestState::kPrefilling:
    case RequestState::kStreaming:
      return std::min(deadline_, attempt_->Alarm());
    case RequestState::kEnding:
      return ended_ + options_.end_wait;
    case RequestState::kOver:
      break;
  }
  return absl::InfiniteFuture();
}

std::vector<int32_t> Request::Tokens(size_t begin, size_t end) const {
  std::vector<int32_t> tokens;
  size_t before = 0;
  for (const std::vector<int32_t>* part : {&wanted_.prompt, &produced_}) {
    const auto within = [&](size_t at) {
      return part->begin() +
             static_cast<ptrdiff_t>(std::clamp(at, before, before + part->size()) - before);
    };
    if (begin < end) tokens.insert(tokens.end(), within(begin), within(end));
    before += part->size();
  }
  return tokens;
}

AttemptSpec Request::NextSpec() const {
  return {.n_prompt = next_position(),
          .max_tokens = tokens_left(),
          .n_made = static_cast<int32_t>(produced().size()),
          .covered = preemptions >= kMaxPreemptions,
          .kept = is_scored() ? std::vector<CachedPrefix>() : kept_,
          .cached = cached,
          .tails = is_scored() ? std::vector<CachedPrefix>() : tails,
          .may_relay = may_relay && !is_scored()};
}

void Request::Dispatch(Attempt::Order order, absl::Time now) {
  BATON_CHECK(!end_reason_);
  state_ = RequestState::kPrefilling;
  BATON_CHECK(order.epoch == epoch_ + 1);
  epoch_ = order.epoch;
  timeline_.router_queue += now - waiting_since_;
  order.since_submitted = now - submitted_;
  attempt_ = std::make_unique<Attempt>(std::move(order), wanted_, options_, &timeline_, now);
}

void Request::Recall(int cause, const AttemptFailure& why, absl::Time now) {
  AttemptRecord& record = timeline_.records.back();
  record.cause = cause;
  record.failure = why.message;
  if (why.worker != 0) record.failed_worker = attempt_->NameOf(why.worker);
  record.given_up = now - submitted_;
  state_ = RequestState::kWaiting;
  waiting_since_ = now;
  if (!attempt_->kept().empty()) kept_ = attempt_->kept();
  attempt_.reset();
}

void Request::End(absl::Time now) {
  state_ = RequestState::kEnding;
  ended_ = now;
  wanted_.prompt = std::vector<int32_t>();  // = {} would keep the memory
  pages = std::vector<PageName>();
  if (attempt_) attempt_->DropTokens();
}

absl::StatusOr<Attempt*> Request::Reported(const char* what, Epoch told) {
  if (told > epoch_)
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s of attempt %d of a request that was dispatched %d times", what, told, epoch_));
  return told == epoch_ && dispatched() ? attempt_.get() : nullptr;
}

absl::Status Request::OnToken(Incarnation from, const TokenOut& token, absl::Time now,
                              std::vector<RouterEffect>* effects) {
  ASSIGN_OR_RETURN(Attempt* const running, Reported("a token", token.epoch));
  if (running == nullptr || end_reason_) return absl::OkStatus();
  RETURN_IF_ERROR(running->OnToken(from, token, next_position(), now));
  if (token.position != next_position()) return absl::OkStatus();
  Emit(token, now, effects);
  while (const std::optional<TokenOut> early =
             end_reason_ ? std::nullopt : running->TakeEarly(next_position()))
    Emit(*early, now, effects);
  return absl::OkStatus();
}

void Request::Emit(const TokenOut& token, absl::Time now, std::vector<RouterEffect>* effects) {
  if (produced_.empty()) {
    timeline_.ttft = now - submitted_;
    timeline_.queue_to_first = timeline_.router_queue;
    timeline_.prefill_queue_to_first = timeline_.prefill_queue;
    timeline_.prefill_to_first = timeline_.prefill;
  }
  state_ = RequestState::kStreaming;
  effects->push_back(EmitToken{.request_id = id_,
                               .index = static_cast<int32_t>(produced_.size()),
                               .token = token.token,
                               .logprob = token.logprob,
                               .digest = token.digest,
                               .logprobs = token.logprobs,
                               .prompt_logprobs = attempt_->OnEmitted(now)});
  wanted_.prompt_logprobs = -1;  // told: later attempts compute without
  produced_.push_back(token.token);
  const std::vector<int32_t>& stops = wanted_.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token.token) != stops.end())
    end_reason_ = EndReason::kStopToken;
  else if (tokens_left() == 0)
    end_reason_ = EndReason::kLength;
}

Timeline Request::MakeTimeline(absl::Time now) const {
  Timeline timeline = timeline_;
  if (state_ == RequestState::kWaiting) timeline.router_queue += now - waiting_since_;
  timeline.total = now - submitted_;
  return timeline;
}

}  // namespace baton
