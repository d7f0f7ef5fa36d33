#include "router/attempt.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

// An attempt that brought so many tokens died of something else than its request.
constexpr int kGotOn = 8;
// The part of a prompt, one in so many, that a prediction may be wrong about what is cached.
constexpr int kSmallPart = 8;
// A step takes about as long with so many tokens more.
constexpr int kFewTokens = 4;
// A relay that takes so much longer than expected is not late.
constexpr absl::Duration kNotLate = absl::Milliseconds(100);
// Factor by which a prediction may be off before an attempt counts as stuck.
constexpr double kPredictionSlack = 20;

// Returns what is left when the plan is computed: the worker of a slice has all up to its end.
std::vector<CachedPrefix> KeptBy(const Plan& plan) {
  std::vector<CachedPrefix> kept;
  for (const PlannedSlice& slice : plan.slices)
    kept.push_back({.worker = slice.worker, .tokens = slice.end});
  return kept;
}

// Adds work of an attempt sent at `sent`, which ended at `end` and took so long. Returns when it
// began.
absl::Time Record(WorkSpan::Kind kind, const std::string& worker, absl::Duration took,
                  absl::Time end, absl::Time sent, AttemptRecord* record) {
  const absl::Time begin = std::max(sent, end - took);
  if (took <= absl::ZeroDuration()) return begin;
  record->spans.push_back({.kind = kind,
                           .worker = worker,
                           .begin = record->sent + (begin - sent),
                           .end = record->sent + (end - sent)});
  return begin;
}

}  // namespace

Attempt::Attempt(Order order, const GenerateRequest& wanted, const RouterOptions& options,
                 Timeline* timeline, absl::Time now)
    : order_(std::move(order)),
      wanted_(wanted),
      options_(options),
      timeline_(*timeline),
      sent_(now),
      silent_until_(now + options.attempt_silence +
                    kPredictionSlack * absl::Seconds(plan().predicted_seconds)),
      late_at_(plan().is_relay() ? now + order_.expected + kNotLate : absl::InfiniteFuture()),
      surprised_(wanted.prompt_logprobs >= 0),  // scoring is in no prediction
      decode_open_(plan().decode != 0),
      open_heads_(plan().HeadWorkers()),
      scored_(surprised_ ? spec().n_prompt - 1 : 0, wanted.prompt_logprobs),
      fault_(options.blame_wait, order_.handoffs) {
  timeline_.prefill_worker = NameOf(plan().prefill());
  timeline_.decode_worker = NameOf(plan().decode);
  timeline_.prefill_heads = absl::StrJoin(
      open_heads_, ",", [this](std::string* out, Incarnation head) { out->append(NameOf(head)); });
  timeline_.attempts = static_cast<int>(order_.epoch);
  timeline_.slices.clear();
  for (const Incarnation worker : plan().PrefillWorkers())
    timeline_.slices.push_back(static_cast<int32_t>(plan().PrefillWorkAt(worker, spec()).tokens));
  timeline_.rounds = static_cast<int>(plan().n_rounds());
  timeline_.predicted = absl::Seconds(plan().told_seconds());
  timeline_.predicted_queue = absl::Seconds(plan().queue_seconds);
  timeline_.predicted_gap = absl::Seconds(plan().gap_seconds + plan().gap_offset_seconds);
  timeline_.push = plan().push;
  timeline_.has_handoff = plan().decode != 0 && plan().decode != plan().prefill();
  timeline_.took = absl::ZeroDuration();
  timeline_.exposed_transfer.reset();
  timeline_.first_decode_step.reset();
  timeline_.rank_compute.clear();
  std::vector<AttemptRecord>& records = timeline_.records;
  if (records.size() == AttemptRecord::kMax) records.erase(records.begin());
  records.push_back({.number = static_cast<int>(order_.epoch),
                     .sent = order_.since_submitted,
                     .prefill_worker = timeline_.prefill_worker,
                     .decode_worker = timeline_.decode_worker,
                     .prefill_heads = timeline_.prefill_heads});
}

absl::Time Attempt::Alarm() const {
  return std::min(silent_until_, fault_.AwaitedUntil().value_or(late_at_));
}

std::vector<Incarnation> Attempt::OpenWorkers() const {
  std::vector<Incarnation> workers;
  if (decode_open_) workers.push_back(plan().decode);
  if (prefill_open_ && !(decode_open_ && plan().prefill() == plan().decode))
    workers.push_back(plan().prefill());
  workers.insert(workers.end(), open_heads_.begin(), open_heads_.end());
  return workers;
}

absl::Status Attempt::OnToken(Incarnation from, const TokenOut& token, int32_t next,
                              absl::Time now) {
  if (from != plan().prefill() && from != plan().decode)
    return absl::InvalidArgumentError("a token of a request that was not given to this worker");
  const int32_t begin = spec().n_prompt, end = begin + spec().max_tokens;
  if (token.position < begin || token.position >= end)
    return absl::InvalidArgumentError(absl::StrFormat(
        "a token at position %d of an attempt that covers [%d, %d)", token.position, begin, end));
  spoke_ = true;
  late_at_ = absl::InfiniteFuture();
  silent_until_ = now + options_.attempt_silence;
  if (from == plan().decode && token.position > begin) decode_spoke_ = true;
  if (token.position > next) early_.emplace(token.position, token);
  return token.position == next ? scored_.CheckWhole() : absl::OkStatus();
}

std::optional<TokenOut> Attempt::TakeEarly(int32_t next) {
  if (early_.empty() || early_.begin()->first != next) return std::nullopt;
  return std::move(early_.extract(early_.begin()).mapped());
}

std::vector<PromptLogprob> Attempt::OnEmitted(absl::Time now) {
  if (n_emitted_++ == 0) {
    kept_ = KeptBy(plan());
    timeline_.took = now - sent_;
    NoteOutcome(now);
  }
  return scored_.Take();
}

absl::Status Attempt::OnPromptComputed(Incarnation from, const PromptComputed& computed,
                                       absl::Time now) {
  if (!prefill_open_) return absl::OkStatus();
  if (from != plan().prefill())
    return absl::InvalidArgumentError("the prompt of a request that was not given to this worker");
  const bool hoped = !plan().is_relay() && spec().PrefillTokensAt(from) < spec().n_prompt;
  // A beginning that most prompts share, like a template's, changes little.
  if (kSmallPart * int64_t{computed.reused_tokens} > spec().n_prompt || hoped) found_more_ = true;
  const int32_t expected = spec().ComputedTokensAt(from);
  const int32_t off = std::abs(spec().n_prompt - computed.reused_tokens - expected);
  is_as_expected_ = !plan().is_relay() && off <= std::max(kFewTokens, expected / kSmallPart);
  if (order_.epoch == 1) timeline_.reused_tokens += computed.reused_tokens;
  kept_ = KeptBy(plan());
  silent_until_ = now + options_.attempt_silence;
  timeline_.prefill_queue += absl::Microseconds(computed.queue_us);
  timeline_.prefill += absl::Microseconds(computed.compute_us);
  const absl::Duration draw = absl::Microseconds(computed.draw_us);
  if (timeline_.ttft == absl::ZeroDuration()) {  // no attempt has brought a token yet
    const absl::Duration inbox = absl::Microseconds(computed.inbox_us);
    const auto work = absl::Microseconds(computed.queue_us + computed.compute_us);
    timeline_.inbox += inbox;
    timeline_.draw += draw;
    timeline_.wire += std::max(absl::ZeroDuration(), now - sent_ - inbox - work - draw);
  }
  AttemptRecord* const record = &timeline_.records.back();
  const absl::Time began =
      Record(WorkSpan::Kind::kPrefill, NameOf(from), absl::Microseconds(computed.compute_us),
             std::max(sent_, now - draw), sent_, record);
  Record(WorkSpan::Kind::kPrefillQueue, NameOf(from), absl::Microseconds(computed.queue_us), began,
         sent_, record);
  return absl::OkStatus();
}

absl::Status Attempt::OnPromptLogprobs(Incarnation from, const PromptLogprobs& told,
                                       absl::Time now) {
  if (!prefill_open_) return absl::OkStatus();
  if (from != plan().prefill())
    return absl::InvalidArgumentError("the prompt of a request that was not given to this worker");
  RETURN_IF_ERROR(scored_.Add(told));
  // The rest of the prompt is still to be computed: the time predicted for it stays.
  silent_until_ = std::max(silent_until_, now + options_.attempt_silence);
  return absl::OkStatus();
}

absl::Status Attempt::OnPartEnded(Incarnation from, const PartEnded& ended, absl::Time now) {
  const bool of_head = ended.was_prefill && plan().IsHead(from);
  if (!of_head && from != (ended.was_prefill ? plan().prefill() : plan().decode))
    return absl::InvalidArgumentError("the end of a part that was not given to this worker");
  if (ended.was_prefill && ended.reason == EndReason::kPreempted)
    return absl::InvalidArgumentError("a prefill part does not end preempted");
  const bool was_open =
      of_head ? std::erase(open_heads_, from) > 0
              : std::exchange(ended.was_prefill ? prefill_open_ : decode_open_, false);
  if (!was_open) return absl::OkStatus();
  silent_until_ = now + options_.attempt_silence;
  AttemptRecord* const record = &timeline_.records.back();
  if (!ended.was_prefill) {
    timeline_.transfer += absl::Microseconds(ended.transfer_us);
    timeline_.decode_queue += absl::Microseconds(ended.queue_us);
    timeline_.decode += absl::Microseconds(ended.compute_us);
    timeline_.first_decode_step = absl::Microseconds(ended.first_step_us);
    const absl::Time began = Record(WorkSpan::Kind::kDecode, NameOf(from),
                                    absl::Microseconds(ended.compute_us), now, sent_, record);
    const absl::Time arrived = Record(WorkSpan::Kind::kDecodeQueue, NameOf(from),
                                      absl::Microseconds(ended.queue_us), began, sent_, record);
    Record(WorkSpan::Kind::kTransfer, NameOf(from), absl::Microseconds(ended.transfer_us), arrived,
           sent_, record);
  } else if (of_head) {
    Record(WorkSpan::Kind::kPrefill, NameOf(from), now - sent_, now, sent_, record);
  }
  // A part that was cut off has not handed its KV over: the 0 that it tells says nothing.
  const bool is_cut = ended.reason == EndReason::kCancelled || ended.reason == EndReason::kFailed;
  if (ended.was_prefill && !of_head && !is_cut)
    timeline_.exposed_transfer = absl::Microseconds(ended.exposed_us);
  if (ended.was_prefill && plan().is_relay())
    timeline_.rank_compute.push_back(absl::Microseconds(ended.compute_us));
  if (of_head && order_.epoch == 1) timeline_.reused_tokens += ended.reused_tokens;
  if (ended.reason == EndReason::kPreempted) preempted_ = true;
  if (ended.reason == EndReason::kFailed && IsOfRequest(ended.fault)) {
    const bool is_read = ended.fault == PartFault::kGrammar;
    verdict_ = is_read ? absl::InvalidArgumentError(ended.message)
                       : absl::InternalError(absl::StrFormat(
                             "request %s: worker %s cannot read the message about it: %s; run the "
                             "same version of baton everywhere",
                             wanted_.name, NameOf(from), ended.message));
    awaits_tokens_ = is_read && !ended.was_prefill;
    return absl::OkStatus();
  }
  const bool needed = !ended.was_prefill || needs_prefill(of_head);
  if (needed && (ended.reason == EndReason::kFailed || ended.reason == EndReason::kCancelled))
    fault_.OnPartFailed(from, ended, now);
  return absl::OkStatus();
}

void Attempt::OnNoRoom(absl::Duration expected_wait, absl::Time now) {
  surprised_ = true;
  late_at_ = absl::InfiniteFuture();  // it waits for room, and is not late; Reassign may move it
  silent_until_ = now + options_.attempt_silence + kPredictionSlack * expected_wait;
}

void Attempt::OnWorkerLost(Incarnation worker) {
  if (std::erase(open_heads_, worker) > 0 && needs_prefill(true))
    fault_.OnWorkerLost("head", worker, NameOf(worker));
  if (prefill_open_ && plan().prefill() == worker) {
    prefill_open_ = false;
    if (needs_prefill(false)) fault_.OnWorkerLost("prefill", worker, NameOf(worker));
  }
  if (decode_open_ && plan().decode == worker) {
    decode_open_ = false;
    fault_.OnWorkerLost("decode", worker, NameOf(worker));
  }
}

// Tokens of the decode worker may have come before the first one, which is the prefill worker's.
absl::Status Attempt::Hopeless() const {
  const bool misses_tokens = n_emitted_ == 0 || !early_.empty();
  return awaits_tokens_ && misses_tokens ? absl::OkStatus() : verdict_;
}

AttemptFailure Attempt::Broken() const {
  if (!fault_.failure().message.empty()) return fault_.failure();
  if (n_emitted_ == 0 && !prefill_open_)
    return {.message = absl::StrFormat("prefill worker %s ended without a first token",
                                       NameOf(plan().prefill()))};
  if (n_emitted_ > 0 && !decode_open_)
    return {.message = absl::StrFormat("decode worker %s ended %d tokens early",
                                       NameOf(plan().decode), spec().max_tokens - n_emitted_)};
  return {};
}

void Attempt::OnGivenUp(const std::vector<CachedPrefix>& kept, absl::Time now) {
  kept_ = kept;
  NoteOutcome(now);
}

void Attempt::NoteOutcome(absl::Time now) {
  if (surprised_ || plan().first_token_seconds <= 0) return;
  const double ratio = absl::ToDoubleSeconds(now - sent_) / plan().first_token_seconds;
  outcome_ = {.ratio = ratio, .found_more = found_more_, .is_as_expected = is_as_expected_};
}

void Attempt::BearLateness(absl::Duration late) {
  late_at_ = sent_ + order_.expected + kNotLate + late;
}

bool Attempt::got_on() const { return n_emitted_ >= kGotOn; }

void Attempt::DropTokens() {
  scored_.Take();
  early_.clear();
}

}  // namespace baton
