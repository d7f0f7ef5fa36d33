#include "decode_worker/decode_batch.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/log.h"
#include "engine/sampling/sequence_sampling.h"

namespace baton {

struct DecodeBatch::Sequence {
  explicit Sequence(TransitionCounts* transitions) : state(SequenceTable(), transitions) {}

  Key key;
  MachineState<SequenceState> state;
  absl::Time progress;  // since then it has got nowhere
  std::optional<DecodeRequest> request;
  SharedGrammar grammar;
  std::optional<SequenceSampling> sampling;  // from kReady on; reads `request`
  std::optional<HandoffArrived> kv;
  absl::Time arrived, first_step = absl::InfiniteFuture();
  int32_t token = 0;     // the newest, not yet in the KV
  int32_t position = 0;  // of `token`
  int32_t made = 0;      // tokens so far, the first one included
  int32_t trimmed = 0;   // leading pages of the table, which fell out of the window
};

namespace {

// Pages of the request up to its end.
int PagesOf(const KvLayout& layout, const DecodeRequest& request) {
  // The last token's KV is never written: nothing follows it.
  return layout.PagesFor(request.n_prompt + request.max_tokens - 1);
}

}  // namespace

DecodeBatch::DecodeBatch(const DecodeOptions& options, const DecodeFacts& facts, KvPool* pool)
    : options_(options), facts_(facts), pool_(pool) {
  BATON_CHECK(facts.vocab > 0 && options.max_batch > 0);
}

DecodeBatch::~DecodeBatch() = default;

bool DecodeBatch::IsCovered(const Sequence& sequence) const {
  return static_cast<int>(sequence.kv->pages.size()) >= PagesOf(pool_->layout(), *sequence.request);
}

// Gives back what no further token sees.
void DecodeBatch::Trim(Sequence* sequence) {
  const int passed = pool_->layout().PagesPassed(sequence->position);
  if (passed <= sequence->trimmed) return;
  pool_->Trim(std::span(sequence->kv->pages).first(passed).subspan(sequence->trimmed));
  sequence->trimmed = passed;
}

// Tokens it can write into the pages it has.
int DecodeBatch::RoomLeft(const Sequence& sequence) const {
  return static_cast<int>(sequence.kv->pages.size()) * pool_->layout().page_tokens -
         sequence.position;
}

// --- events

DecodeBatch::Sequence* DecodeBatch::Find(const Key& key) {
  const auto it = sequences_.find(key);
  return it == sequences_.end() ? nullptr : it->second.get();
}

DecodeBatch::Sequence* DecodeBatch::FindOrMake(const Key& key) {
  std::unique_ptr<Sequence>& sequence = sequences_[key];
  if (sequence == nullptr) {
    sequence = std::make_unique<Sequence>(options_.transitions);
    sequence->key = key;
  }
  return sequence.get();
}

void DecodeBatch::Expect(DecodeRequest request, absl::Time now, SharedGrammar grammar) {
  const Key key{request.request_id, request.epoch};
  if (WasCancelled(key.first, key.second)) return;
  Sequence* const sequence = FindOrMake(key);
  if (sequence->request.has_value()) return;  // said twice
  // Cancel earlier attempts at this request, including KV still in transfer.
  if (key.second > 1) Cancel(key.first, key.second - 1);
  const bool bad = request.n_prompt <= 0 || request.max_tokens <= 0 ||
                   request.max_tokens > INT32_MAX - request.n_prompt || request.n_generated < 0 ||
                   request.n_generated >= request.n_prompt;
  sequence->request = std::move(request);
  sequence->grammar = std::move(grammar);
  sequence->progress = now;
  if (bad) {
    End(sequence, EndReason::kFailed, "a decode request without prompt or tokens to make",
        absl::InfiniteFuture());
  } else if (n_sequences() > options_.max_sequences) {
    End(sequence, EndReason::kFailed,
        absl::StrFormat("decode queue full (%d requests)", options_.max_sequences),
        absl::InfiniteFuture());
  } else if (sequence->kv.has_value()) {
    Complete(sequence, now);
  }
}

void DecodeBatch::Arrived(HandoffArrived arrived, absl::Time now) {
  const Key key{arrived.request_id, arrived.epoch};
  if (WasCancelled(key.first, key.second)) {
    pool_->Give(arrived.pages);
    return;
  }
  Sequence* const sequence = FindOrMake(key);
  if (sequence->kv.has_value()) {
    pool_->Give(arrived.pages);
    return;
  }
  sequence->kv = std::move(arrived);
  sequence->arrived = sequence->progress = now;
  if (sequence->request.has_value())
    Complete(sequence, now);
  else
    sequence->state = SequenceState::kOrphan;
}

std::string DecodeBatch::WhyRefused(const Sequence& sequence) const {
  const CommitRecord& record = sequence.kv->record;
  const DecodeRequest& request = *sequence.request;
  const bool lacks_history =
      request.history.empty() && NeedsHistory(request.sampling, request.n_generated);
  if (lacks_history ||
      (!request.history.empty() && request.history.size() != static_cast<size_t>(request.n_prompt)))
    return absl::StrFormat("history of %d tokens, %d needed", request.history.size(),
                           request.n_prompt);
  for (const int32_t token : request.history)
    if (token < 0 || token >= facts_.vocab)
      return absl::StrFormat("token id %d in the history, vocabulary of %d", token, facts_.vocab);
  if (!(sequence.kv->ticket_id == sequence.request->ticket_id))
    return "KV came under another ticket";
  if (record.n_tokens != sequence.request->n_prompt)
    return absl::StrFormat("KV of %d tokens came for a prompt of %d", record.n_tokens,
                           sequence.request->n_prompt);
  if (record.first_token < 0 || record.first_token >= facts_.vocab)
    return absl::StrFormat("first token %d, vocabulary of %d", record.first_token, facts_.vocab);
  const auto pages = static_cast<int>(sequence.kv->pages.size());
  const int needed = pool_->layout().PagesFor(record.n_tokens);
  if (pages < needed) return absl::StrFormat("%d pages promised, %d needed", pages, needed);
  return {};
}

// Request and KV are both here.
void DecodeBatch::Complete(Sequence* sequence, absl::Time now) {
  if (std::string refusal = WhyRefused(*sequence); !refusal.empty()) {
    End(sequence, EndReason::kFailed, std::move(refusal), sequence->arrived);
    return;
  }
  const std::vector<int32_t>& stops = sequence->request->stop_tokens;
  sequence->token = sequence->kv->record.first_token;
  sequence->position = sequence->kv->record.n_tokens;
  sequence->made = 1;
  if (std::find(stops.begin(), stops.end(), sequence->token) != stops.end()) {
    End(sequence, EndReason::kStopToken, {}, sequence->arrived);
  } else if (sequence->request->max_tokens == 1) {
    End(sequence, EndReason::kLength, {}, sequence->arrived);
  } else {
    DecodeRequest& request = *sequence->request;
    sequence->sampling.emplace(request.sampling, stops, request.history, request.n_generated,
                               sequence->grammar.get());
    sequence->sampling->Push(sequence->token);
    if (const absl::Status& status = sequence->sampling->status(); !status.ok()) {
      End(sequence, EndReason::kFailed, std::string(status.message()), sequence->arrived,
          PartFault::kGrammar);
      return;
    }
    request.history = std::vector<int32_t>();  // = {} would keep the memory
    sequence->state = SequenceState::kReady;
    sequence->progress = now;
    Trim(sequence);
    ready_.push_back(sequence);
  }
}

void DecodeBatch::Aborted(const HandoffAborted& event) {
  Sequence* const sequence = Find(Key{event.request_id, event.epoch});
  if (sequence == nullptr || sequence->kv.has_value()) return;
  End(sequence, EndReason::kFailed, absl::StrFormat("handoff: %s", event.status.ToString()),
      absl::InfiniteFuture(), PartFault::kHandoff);
}

void DecodeBatch::Cancel(RequestId request, Epoch up_to) {
  BATON_DCHECK(logits_.empty());
  Remember(request, up_to);
  std::vector<Sequence*> found;
  for (auto it = sequences_.lower_bound({request, 0}); it != sequences_.end(); ++it) {
    if (it->first.first != request || it->first.second > up_to) break;
    found.push_back(it->second.get());
  }
  for (Sequence* sequence : found) End(sequence, EndReason::kCancelled, {}, absl::InfiniteFuture());
}

void DecodeBatch::CancelAll() {
  std::vector<Sequence*> found;
  for (const auto& [key, sequence] : sequences_) found.push_back(sequence.get());
  for (Sequence* sequence : found) {
    Remember(sequence->key.first, sequence->key.second);
    End(sequence, EndReason::kCancelled, {}, absl::InfiniteFuture());
  }
}

void DecodeBatch::Remember(RequestId request, Epoch up_to) {
  constexpr size_t kRemembered = 65536;
  const auto [it, is_new] = cancelled_.try_emplace(request, up_to);
  if (!is_new) {
    it->second = std::max(it->second, up_to);
    return;
  }
  cancelled_order_.push_back(request);
  if (cancelled_order_.size() > kRemembered) {
    cancelled_.erase(cancelled_order_.front());
    cancelled_order_.pop_front();
  }
}

bool DecodeBatch::WasCancelled(RequestId request, Epoch epoch) const {
  const auto it = cancelled_.find(request);
  return it != cancelled_.end() && epoch <= it->second;
}

absl::Time DecodeBatch::DeadlineOf(const Sequence& sequence) const {
  switch (SequenceState(sequence.state)) {
    case SequenceState::kExpected:
      return sequence.progress + options_.kv_timeout;
    case SequenceState::kOrphan:
      return sequence.progress + options_.orphan_timeout;
    case SequenceState::kReady:
    case SequenceState::kDecoding:
      return sequence.progress + options_.wait_timeout;
    case SequenceState::kEnded:
      break;
  }
  return absl::InfiniteFuture();
}

void DecodeBatch::OnTime(absl::Time now) {
  BATON_DCHECK(logits_.empty());
  std::vector<Sequence*> due;
  for (const auto& [key, sequence] : sequences_)
    if (DeadlineOf(*sequence) <= now) due.push_back(sequence.get());
  for (Sequence* sequence : due) {
    if (sequence->state == SequenceState::kOrphan) {
      LogWarn("handoff of a request this worker was never told of: pages given back %d",
              static_cast<int>(sequence->kv->pages.size()));
      sequence->state = SequenceState::kEnded;
      pool_->Give(sequence->kv->pages);
      sequences_.erase(sequence->key);
      continue;
    }
    const int state = static_cast<int>(SequenceState(sequence->state));
    End(sequence, EndReason::kFailed,
        absl::StrFormat("decode: %s for %s without progress", SequenceTable().states[state].name,
                        absl::FormatDuration(now - sequence->progress)),
        absl::InfiniteFuture());
  }
}

absl::Time DecodeBatch::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [key, sequence] : sequences_) next = std::min(next, DeadlineOf(*sequence));
  return next;
}

// now: infinite = the sequence did not end by computing.
void DecodeBatch::End(Sequence* sequence, EndReason reason, std::string message, absl::Time now,
                      PartFault fault) {
  PartEnded part;
  part.request_id = sequence->key.first;
  part.epoch = sequence->key.second;
  part.reason = reason;
  part.fault = fault;
  part.message = std::move(message);
  sequence->state = SequenceState::kEnded;
  if (sequence->kv.has_value()) {
    part.transfer_us = sequence->kv->transfer_us;
    pool_->Give(sequence->kv->pages);
  } else {
    // The KV may still be on the way: the transfer room gives its pages back.
    effects_.emplace_back(TransferCommand(
        CancelHandoff{.ticket_id = sequence->request->ticket_id, .epoch = sequence->key.second}));
  }
  if (sequence->first_step != absl::InfiniteFuture()) {
    part.queue_us = absl::ToInt64Microseconds(sequence->first_step - sequence->arrived);
    if (now != absl::InfiniteFuture())
      part.compute_us = absl::ToInt64Microseconds(now - sequence->first_step);
  }
  effects_.emplace_back(WorkerEvent(std::move(part)));
  std::erase(rows_, sequence);
  std::erase(ready_, sequence);
  sequences_.erase(sequence->key);
}

// --- one step

DecodeBatch::Sequence* DecodeBatch::YoungestToPreempt() const {
  const auto uncovered = [this](const Sequence* sequence) { return !IsCovered(*sequence); };
  if (const auto it = std::find_if(ready_.rbegin(), ready_.rend(), uncovered); it != ready_.rend())
    return *it;
  const auto it = std::find_if(rows_.rbegin(), rows_.rend(), uncovered);
  BATON_CHECK(it != rows_.rend());
  return *it;
}

// The oldest row first: it takes what there is, and it is the last to be preempted.
void DecodeBatch::Grow(absl::Time now, int reclaimable) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    Sequence* const sequence = rows_[i];
    bool preempted = false;
    while (!preempted && RoomLeft(*sequence) == 0 && !pool_->Take(1, &sequence->kv->pages)) {
      if (reclaimable-- > 0) break;
      Sequence* const victim = YoungestToPreempt();
      preempted = victim == sequence;
      End(victim, EndReason::kPreempted, {}, now);
    }
    if (preempted) --i;  // it was the last one that is not covered; its place has been taken
  }
}

int DecodeBatch::Contribute(absl::Time now, int reclaimable, StepBuilder* builder) {
  BATON_DCHECK(logits_.empty());
  unmasked_.clear();
  while (!ready_.empty() && n_rows() < options_.max_batch) {
    ready_.front()->state = SequenceState::kDecoding;
    ready_.front()->first_step = now;
    rows_.push_back(ready_.front());
    ready_.pop_front();
  }
  Grow(now, reclaimable);
  int n = 0;
  for (Sequence* sequence : rows_) {
    if (RoomLeft(*sequence) == 0) {
      logits_.push_back(-1);
      continue;
    }
    const std::span<const int32_t> pages(sequence->kv->pages);
    const DecodeRequest& request = *sequence->request;
    const int row =
        builder->AddPiece(std::span(&sequence->token, 1), sequence->position,
                          pages.first(pool_->layout().PagesFor(sequence->position + 1)),
                          facts_.rope.RangeOf(int64_t{request.n_prompt} + request.max_tokens));
    logits_.push_back(builder->WantLogits(row));
    if (sequence->sampling->has_grammar()) unmasked_.push_back(&*sequence->sampling);
    ++n;
  }
  if (n == 0) logits_.clear();  // no step
  return n;
}

void DecodeBatch::StepDone(const Backend& backend, Sampler* sampler, absl::Time now) {
  sample_rows_.clear();
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (logits_[i] < 0) continue;
    sample_rows_.push_back({.logits = backend.logits(logits_[i]),
                            .sampling = &*rows_[i]->sampling,
                            .position = rows_[i]->position + 1});
  }
  sampled_.resize(sample_rows_.size());
  sampler->SampleRows(sample_rows_, sampled_);

  std::vector<std::pair<Sequence*, EndReason>> ended;
  std::vector<Sequence*> failed;
  for (size_t i = 0, row = 0; i < logits_.size(); ++i) {
    if (logits_[i] < 0) continue;
    Sequence* sequence = rows_[i];
    const DecodeRequest& request = *sequence->request;
    const std::span<const float> logits = sample_rows_[row].logits;
    SampledToken& sampled = sampled_[row++];
    sequence->sampling->Push(sampled.token);
    if (!sequence->sampling->status().ok()) {
      failed.push_back(sequence);
      continue;
    }
    sequence->token = sampled.token;
    ++sequence->position;
    ++sequence->made;
    sequence->progress = now;
    Trim(sequence);
    effects_.emplace_back(
        WorkerEvent(TokenOut{.request_id = request.request_id,
                             .epoch = request.epoch,
                             .position = sequence->position,
                             .token = sampled.token,
                             .logprob = sampled.logprob,
                             .digest = request.want_digests ? LogitsDigest(logits, 0) : 0,
                             .logprobs = std::move(sampled.logprobs)}));
    const std::vector<int32_t>& stops = request.stop_tokens;
    if (std::find(stops.begin(), stops.end(), sampled.token) != stops.end())
      ended.emplace_back(sequence, EndReason::kStopToken);
    else if (sequence->made == request.max_tokens)
      ended.emplace_back(sequence, EndReason::kLength);
  }
  logits_.clear();
  for (const auto& [sequence, reason] : ended) End(sequence, reason, {}, now);
  for (Sequence* sequence : failed)
    End(sequence, EndReason::kFailed, std::string(sequence->sampling->status().message()), now,
        PartFault::kGrammar);
}

void DecodeBatch::TakeEffects(std::vector<DecodeEffect>* out) {
  for (DecodeEffect& effect : effects_) out->push_back(std::move(effect));
  effects_.clear();
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
    if (!sequence->kv.has_value()) pages += PagesOf(pool_->layout(), *sequence->request) + 1;
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
        return !IsCovered(*sequence) && RoomLeft(*sequence) < kStepsAhead;
      }));
}

int DecodeBatch::steps_to_first_end() const {
  int steps = 0;
  for (const Sequence* sequence : rows_) {
    const int left = sequence->request->max_tokens - sequence->made;
    if (steps == 0 || left < steps) steps = left;
  }
  return steps;
}

}  // namespace baton
