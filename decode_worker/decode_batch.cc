#include "decode_worker/decode_batch.h"

#include <algorithm>
#include <span>
#include <string>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/log.h"

namespace baton {

DecodeBatch::DecodeBatch(const DecodeOptions& options, const ModelDesc& model, KvPool* pool,
                         PrefixIndex* index)
    : options_(options), model_(model), pool_(pool), index_(index) {
  BATON_CHECK(options.max_batch > 0);
}

// --- events

Sequence* DecodeBatch::FindOrMake(const Sequence::Key& key) {
  std::unique_ptr<Sequence>& sequence = sequences_[key];
  if (sequence == nullptr) sequence = std::make_unique<Sequence>(key, options_.transitions);
  return sequence.get();
}

void DecodeBatch::Expect(DecodeRequest request, absl::Time now, SharedGrammar grammar) {
  const Sequence::Key key{request.request_id, request.epoch};
  if (cancelled_.Has(key.first, key.second)) return;
  Sequence* const sequence = FindOrMake(key);
  if (sequence->request.has_value()) return;  // said twice
  // Cancel earlier attempts at this request, including KV still in transfer.
  if (key.second > 1) Cancel(key.first, key.second - 1);
  absl::Status status = CheckRequest(request, model_.vocab);
  if (status.ok() && n_sequences() > options_.max_sequences)
    status = absl::ResourceExhaustedError(
        absl::StrFormat("decode queue full (%d requests)", options_.max_sequences));
  sequence->n_prompt = static_cast<int32_t>(request.tokens.size());
  sequence->request = std::move(request);
  sequence->grammar = std::move(grammar);
  sequence->progress = now;
  if (!status.ok()) return End(sequence, EndReason::kFailed, status);
  if (sequence->kv.has_value()) return Complete(sequence, now);
  LendHeld(*sequence);
}

// Pages of the prompt that are here need not come; that none is here is told, too, because the
// promise may wait for it.
void DecodeBatch::LendHeld(const Sequence& sequence) {
  const DecodeRequest& request = *sequence.request;
  if (index_ == nullptr || request.is_local) return;
  baton::LendHeld held{.ticket_id = request.ticket_id, .epoch = request.epoch, .pages = {}};
  PrefixChain chain = PrefixChain::Beginning(request.cache_salt, sequence.RangeIn(model_.rope));
  index_->Hold(request.tokens, &chain, &held.pages);
  const std::span<const int32_t> last =
      std::span(request.tokens)
          .subspan(held.pages.size() * static_cast<size_t>(pool_->layout().page_tokens));
  if (!last.empty() && static_cast<int>(last.size()) < pool_->layout().page_tokens) {
    // The row writes behind it, so it gets a copy.
    const PrefixPart copy = index_->TakeCopy(last, chain, static_cast<int>(last.size()));
    if (copy.n_tokens > 0) held.pages.push_back(copy.page);
  }
  effects_.emplace_back(TransferCommand(std::move(held)));
}

void DecodeBatch::On(HandoffArrived& event, absl::Time now) {
  const Sequence::Key key{event.request_id, event.epoch};
  if (cancelled_.Has(key.first, key.second)) return pool_->Give(event.pages);
  Sequence* const sequence = FindOrMake(key);
  if (sequence->kv.has_value()) return pool_->Give(event.pages);
  sequence->kv = std::move(event);
  sequence->arrived = sequence->progress = now;
  if (sequence->request.has_value())
    Complete(sequence, now);
  else
    sequence->state = SequenceState::kOrphan;
}

// Request and KV are both here.
void DecodeBatch::Complete(Sequence* sequence, absl::Time now) {
  DecodeRequest& request = *sequence->request;
  const HandoffArrived& kv = *sequence->kv;
  if (const absl::Status status = CheckKv(request, kv, model_.vocab, pool_->layout()); !status.ok())
    return End(sequence, EndReason::kFailed, status);
  sequence->token = kv.record.first_token;
  sequence->position = kv.record.n_tokens;
  if (const auto reason = sequence->EndsWithToken()) return End(sequence, *reason);
  sequence->sampling =
      std::make_shared<SequenceSampling>(request.sampling, request.stop_tokens, request.tokens,
                                         request.n_generated, sequence->grammar.get());
  sequence->sampling->Push(sequence->token);
  if (const absl::Status& status = sequence->sampling->status(); !status.ok())
    return End(sequence, EndReason::kFailed, status, PartFault::kGrammar);
  sequence->state = SequenceState::kReady;
  sequence->progress = now;
  std::vector<int32_t> tokens = std::move(request.tokens);
  if (index_ != nullptr) {
    sequence->chain = PrefixChain::Beginning(request.cache_salt, sequence->RangeIn(model_.rope));
    sequence->Written(tokens, index_, pool_->layout().page_tokens);
    sequence->EnterTail(index_);  // for other choices of the prompt
  }
  sequence->Trim(pool_);
  ready_.push_back(sequence);
}

void DecodeBatch::On(const HandoffAborted& event, absl::Time) {
  const auto it = sequences_.find({event.request_id, event.epoch});
  if (it == sequences_.end() || it->second->kv.has_value()) return;
  End(it->second.get(), EndReason::kFailed,
      absl::AbortedError(absl::StrFormat("handoff: %s", event.status.ToString())),
      PartFault::kHandoff);
}

void DecodeBatch::Refuse(const DecodeRequest& request) {
  if (request.epoch > 1) Cancel(request.request_id, request.epoch - 1);
  cancelled_.Add(request.request_id, request.epoch);
  effects_.emplace_back(
      TransferCommand(CancelHandoff{.ticket_id = request.ticket_id, .epoch = request.epoch}));
  const auto it = sequences_.find({request.request_id, request.epoch});
  if (it != sequences_.end() && it->second->state == SequenceState::kOrphan)
    Remove(it->second.get());
}

void DecodeBatch::Cancel(RequestId request, Epoch up_to) {
  cancelled_.Add(request, up_to);
  std::vector<Sequence*> found;
  for (auto it = sequences_.lower_bound({request, 0}); it != sequences_.end(); ++it) {
    if (it->first.first != request || it->first.second > up_to) break;
    found.push_back(it->second.get());
  }
  for (Sequence* sequence : found) End(sequence, EndReason::kCancelled);
}

// Orphans are no ended requests: nobody has told of theirs.
int DecodeBatch::CancelAll(std::optional<RouterId> router) {
  int n_ended = 0;
  const auto next = [&] {
    return router ? sequences_.lower_bound({MakeRequestId(*router, 0), 0}) : sequences_.begin();
  };
  for (auto it = next();
       it != sequences_.end() && (!router || RouterOf(it->first.first) == *router); it = next()) {
    n_ended += it->second->request.has_value();
    Cancel(it->first.first, it->first.second);
  }
  return n_ended;
}

void DecodeBatch::OnTime(absl::Time now) {
  std::vector<Sequence*> due;
  for (const auto& [key, sequence] : sequences_)
    if (sequence->Deadline(options_) <= now) due.push_back(sequence.get());
  for (Sequence* sequence : due) {
    if (sequence->state == SequenceState::kOrphan) {
      LogWarn("handoff of a request this worker was never told of: pages given back %d",
              static_cast<int>(sequence->kv->pages.size()));
      Remove(sequence);
      continue;
    }
    const int state = static_cast<int>(SequenceState(sequence->state));
    End(sequence, EndReason::kFailed,
        absl::DeadlineExceededError(absl::StrFormat(
            "decode: %s for %s without progress", SequenceTable().states[state].name,
            absl::FormatDuration(now - sequence->progress))));
  }
}

absl::Time DecodeBatch::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [key, sequence] : sequences_)
    next = std::min(next, sequence->Deadline(options_));
  return next;
}

void DecodeBatch::End(Sequence* sequence, EndReason reason, const absl::Status& why,
                      PartFault fault) {
  PartEnded part;
  part.request_id = sequence->key.first;
  part.epoch = sequence->key.second;
  part.reason = reason;
  part.fault = fault;
  part.message = std::string(why.message());
  if (sequence->kv.has_value()) part.transfer_us = sequence->kv->transfer_us;
  if (sequence->state == SequenceState::kDecoding) {
    part.queue_us = absl::ToInt64Microseconds(sequence->first_step - sequence->arrived);
    part.compute_us = absl::ToInt64Microseconds(sequence->progress - sequence->first_step);
    part.first_step_us = absl::ToInt64Microseconds(sequence->first_step_took);
  }
  Remove(sequence);
  effects_.emplace_back(WorkerEvent(std::move(part)));
}

void DecodeBatch::Remove(Sequence* sequence) {
  sequence->state = SequenceState::kEnded;
  if (sequence->kv.has_value()) {
    if (index_ != nullptr) sequence->EnterTail(index_);
    pool_->Give(sequence->kv->pages);
  } else {
    // The KV may still be on the way: the transfer room gives its pages back, or this batch does.
    cancelled_.Add(sequence->key.first, sequence->key.second);
    effects_.emplace_back(TransferCommand(
        CancelHandoff{.ticket_id = sequence->request->ticket_id, .epoch = sequence->key.second}));
  }
  std::erase(rows_, sequence);
  std::erase(ready_, sequence);
  for (std::vector<StepRow>& step : steps_)
    for (StepRow& row : step)
      if (row.sequence == sequence) row.sequence = nullptr;
  sequences_.erase(sequence->key);
}

// --- one step

Sequence* DecodeBatch::YoungestToPreempt() const {
  const auto uncovered = [this](const Sequence* sequence) {
    return !sequence->IsCovered(pool_->layout());
  };
  if (const auto it = std::find_if(ready_.rbegin(), ready_.rend(), uncovered); it != ready_.rend())
    return *it;
  const auto it = std::find_if(rows_.rbegin(), rows_.rend(), uncovered);
  BATON_CHECK(it != rows_.rend());
  return *it;
}

// The oldest row first: it takes what there is, and it is the last to be preempted.
void DecodeBatch::Grow(int reclaimable) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    Sequence* const sequence = rows_[i];
    bool preempted = false;
    while (!preempted && sequence->WantsRow() && sequence->RoomLeft(pool_->layout()) == 0 &&
           !pool_->Take(1, &sequence->kv->pages)) {
      if (reclaimable-- > 0) break;
      Sequence* const victim = YoungestToPreempt();
      preempted = victim == sequence;
      End(victim, EndReason::kPreempted);
    }
    if (preempted) --i;  // it was the last one that is not covered; its place has been taken
  }
}

int DecodeBatch::Contribute(absl::Time now, int reclaimable, StepBuilder* builder) {
  while (!ready_.empty() && n_rows() < options_.max_batch) {
    Sequence* const sequence = ready_.front();
    sequence->state = SequenceState::kDecoding;
    sequence->first_step = sequence->progress = now;
    rows_.push_back(sequence);
    ready_.pop_front();
  }
  Grow(reclaimable);
  std::vector<StepRow> step;
  for (Sequence* sequence : rows_) {
    const int before = std::exchange(sequence->logits, -1);
    if (!sequence->WantsRow() || sequence->RoomLeft(pool_->layout()) == 0) continue;
    if (sequence->ahead > 0 && before < 0) continue;  // its token is neither known nor fed
    const int32_t token = sequence->ahead > 0 ? FedToken(before) : sequence->token;
    const int position = sequence->position + sequence->ahead;
    const int row = builder->AddPiece(
        std::span(&token, 1), position,
        std::span(sequence->kv->pages).first(pool_->layout().PagesFor(position + 1)),
        sequence->RangeIn(model_.rope));
    sequence->logits = builder->WantLogits(row);
    ++sequence->ahead;
    step.push_back({sequence, sequence->logits});
  }
  const int n = static_cast<int>(step.size());
  if (n > 0) steps_.push_back(std::move(step));
  return n;
}

bool DecodeBatch::CanSample() const {
  return std::all_of(steps_.back().begin(), steps_.back().end(), [](const StepRow& row) {
    return row.sequence == nullptr || row.sequence->ahead == 1 ||
           !row.sequence->sampling->LooksBack();
  });
}

std::vector<SequenceSampling*> DecodeBatch::unmasked() const {
  std::vector<SequenceSampling*> unmasked;
  for (const StepRow& row : steps_.back())
    if (row.sequence != nullptr && row.sequence->sampling->has_grammar())
      unmasked.push_back(row.sequence->sampling.get());
  return unmasked;
}

void DecodeBatch::AddSampling(std::vector<RowSampling>* rows) const {
  for (const StepRow& row : steps_.back()) {
    RowSampling& to = rows->emplace_back();
    if (row.sequence == nullptr) continue;
    to = {.sampling = row.sequence->sampling,
          .position = row.sequence->position + row.sequence->ahead,
          .wants_digest = row.sequence->request->want_digests};
  }
}

void DecodeBatch::StepDone(std::span<SampledToken> all_sampled, absl::Time now) {
  for (const StepRow& row : steps_.front()) {
    Sequence* const sequence = row.sequence;
    if (sequence == nullptr) continue;
    const DecodeRequest& request = *sequence->request;
    SampledToken& sampled = all_sampled[static_cast<size_t>(row.logits)];
    --sequence->ahead;
    if (sequence->first_step_took == absl::ZeroDuration())
      sequence->first_step_took = now - sequence->first_step;
    sequence->progress = now;
    sequence->sampling->Push(sampled.token);
    if (const absl::Status& status = sequence->sampling->status(); !status.ok()) {
      End(sequence, EndReason::kFailed, status, PartFault::kGrammar);
      continue;
    }
    if (index_ != nullptr)
      sequence->Written(std::span(&sequence->token, 1), index_, pool_->layout().page_tokens);
    sequence->token = sampled.token;
    ++sequence->position;
    sequence->Trim(pool_);
    effects_.emplace_back(WorkerEvent(TokenOut{.request_id = request.request_id,
                                               .epoch = request.epoch,
                                               .position = sequence->position,
                                               .token = sampled.token,
                                               .logprob = sampled.logprob,
                                               .digest = sampled.digest,
                                               .logprobs = std::move(sampled.logprobs)}));
    if (const auto reason = sequence->EndsWithToken()) End(sequence, *reason);
  }
  steps_.pop_front();
}

// --- what others must know

int DecodeBatch::n_waiting() const {
  int waiting = 0;
  for (const auto& [key, sequence] : sequences_) waiting += sequence->request.has_value();
  return waiting - n_rows();
}

int DecodeBatch::expected_pages() const {
  int pages = 0;
  for (const auto& [key, sequence] : sequences_)
    if (!sequence->kv.has_value() && !sequence->request->is_local)
      pages += sequence->PagesToEnd(pool_->layout()) + 1;
  return pages;
}

int DecodeBatch::pages_held() const {
  int pages = 0;
  for (const auto& [key, sequence] : sequences_)
    if (sequence->kv.has_value()) pages += CountPages(sequence->kv->pages);
  return pages;
}

int DecodeBatch::growth_pages() const {
  constexpr int kStepsAhead = 16;  // more than pages take to come back from the transfer room
  return static_cast<int>(
      std::count_if(rows_.begin(), rows_.end(), [this](const Sequence* sequence) {
        return !sequence->IsCovered(pool_->layout()) &&
               sequence->RoomLeft(pool_->layout()) < kStepsAhead;
      }));
}

int DecodeBatch::steps_to_first_end() const {
  int steps = 0;
  for (const Sequence* sequence : rows_)
    if (steps == 0 || sequence->TokensLeft() < steps) steps = sequence->TokensLeft();
  return steps;
}

}  // namespace baton
