#include "decode_worker/decode_batch.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/log.h"
#include "common/planted_bug.h"

namespace baton {

struct DecodeBatch::Guest {
  explicit Guest(TransitionCounts* transitions) : state(GuestTable(), transitions) {}

  Key key;
  MachineState<GuestState> state;
  absl::Time progress;  // since then it has got nowhere
  std::optional<DecodeRequest> request;
  std::optional<HandoffArrived> kv;
  absl::Time arrived, first_step = absl::InfiniteFuture();
  int32_t token = 0;     // the newest, not yet in the KV
  int32_t position = 0;  // of `token`
  int32_t made = 0;      // tokens so far, the first one included
  int32_t trimmed = 0;   // leading pages of the table, which fell out of the window
};

DecodeBatch::DecodeBatch(const DecodeOptions& options, KvPool* pool)
    : options_(options), pool_(pool) {
  CHECK(options.vocab > 0 && options.max_batch > 0);
}

DecodeBatch::~DecodeBatch() = default;

int DecodeBatch::PagesOf(const DecodeRequest& request) const {
  // The last token's KV is never written: nothing follows it.
  return pool_->layout().PagesFor(request.n_prompt + request.max_tokens - 1);
}

bool DecodeBatch::IsCovered(const Guest& guest) const {
  return static_cast<int>(guest.kv->pages.size()) >= PagesOf(*guest.request);
}

// Gives back what no further token sees.
void DecodeBatch::Trim(Guest* guest) {
  int passed = pool_->layout().PagesPassed(guest->position);
  if (Planted(PlantedBug::kTrimsTooMuch) && passed > 0) ++passed;
  if (passed <= guest->trimmed) return;
  pool_->Trim(std::span(guest->kv->pages).first(passed).subspan(guest->trimmed));
  guest->trimmed = passed;
}

// Tokens it can write into the pages it has.
int DecodeBatch::RoomLeft(const Guest& guest) const {
  return static_cast<int>(guest.kv->pages.size()) * pool_->layout().page_tokens - guest.position;
}

// --- events

DecodeBatch::Guest* DecodeBatch::Find(const Key& key) {
  const auto it = guests_.find(key);
  return it == guests_.end() ? nullptr : it->second.get();
}

DecodeBatch::Guest* DecodeBatch::FindOrMake(const Key& key) {
  std::unique_ptr<Guest>& guest = guests_[key];
  if (guest == nullptr) {
    guest = std::make_unique<Guest>(options_.transitions);
    guest->key = key;
  }
  return guest.get();
}

void DecodeBatch::Expect(DecodeRequest request, absl::Time now) {
  const Key key{request.request_id, request.epoch};
  if (WasCancelled(key.first, key.second)) return;
  Guest* const guest = FindOrMake(key);
  if (guest->request.has_value()) return;  // said twice
  // What an earlier attempt still has here, or what of it is still on its way, is nobody's.
  if (key.second > 1) Cancel(key.first, key.second - 1);
  const bool bad = request.n_prompt <= 0 || request.max_tokens <= 0 ||
                   request.max_tokens > INT32_MAX - request.n_prompt;
  guest->request = std::move(request);
  guest->progress = now;
  if (bad) {
    End(guest, EndReason::kFailed, "a decode request without prompt or tokens to make",
        absl::InfiniteFuture());
  } else if (n_guests() > options_.max_guests) {
    End(guest, EndReason::kFailed,
        absl::StrFormat("decode queue full (%d requests)", options_.max_guests),
        absl::InfiniteFuture());
  } else if (guest->kv.has_value()) {
    Complete(guest, now);
  }
}

void DecodeBatch::Arrived(HandoffArrived arrived, absl::Time now) {
  const Key key{arrived.request_id, arrived.epoch};
  if (WasCancelled(key.first, key.second)) {
    if (!Planted(PlantedBug::kLateKvDropped)) pool_->Give(arrived.pages);
    return;
  }
  Guest* const guest = FindOrMake(key);
  if (guest->kv.has_value()) {
    pool_->Give(arrived.pages);
    return;
  }
  guest->kv = std::move(arrived);
  guest->arrived = guest->progress = now;
  if (guest->request.has_value())
    Complete(guest, now);
  else
    guest->state = GuestState::kOrphan;
}

std::string DecodeBatch::WhyRefused(const Guest& guest) const {
  const CommitRecord& record = guest.kv->record;
  if (!(guest.kv->ticket_id == guest.request->ticket_id)) return "KV came under another ticket";
  if (record.n_tokens != guest.request->n_prompt)
    return absl::StrFormat("KV of %d tokens came for a prompt of %d", record.n_tokens,
                           guest.request->n_prompt);
  if (record.first_token < 0 || record.first_token >= options_.vocab)
    return absl::StrFormat("first token %d, vocabulary of %d", record.first_token, options_.vocab);
  const auto pages = static_cast<int>(guest.kv->pages.size());
  const int needed = pool_->layout().PagesFor(record.n_tokens);
  if (pages < needed) return absl::StrFormat("%d pages promised, %d needed", pages, needed);
  return {};
}

// Request and KV are both here.
void DecodeBatch::Complete(Guest* guest, absl::Time now) {
  if (std::string refusal = WhyRefused(*guest); !refusal.empty()) {
    End(guest, EndReason::kFailed, std::move(refusal), guest->arrived);
    return;
  }
  const std::vector<int32_t>& stops = guest->request->stop_tokens;
  guest->token = guest->kv->record.first_token;
  guest->position = guest->kv->record.n_tokens;
  guest->made = 1;
  if (std::find(stops.begin(), stops.end(), guest->token) != stops.end()) {
    End(guest, EndReason::kStopToken, {}, guest->arrived);
  } else if (guest->request->max_tokens == 1) {
    End(guest, EndReason::kLength, {}, guest->arrived);
  } else {
    guest->state = GuestState::kReady;
    guest->progress = now;
    Trim(guest);
    ready_.push_back(guest);
  }
}

void DecodeBatch::Aborted(const HandoffAborted& event) {
  Guest* const guest = Find(Key{event.request_id, event.epoch});
  if (guest == nullptr || guest->kv.has_value()) return;
  End(guest, EndReason::kFailed, absl::StrFormat("handoff: %s", event.status.ToString()),
      absl::InfiniteFuture(), PartFault::kHandoff);
}

void DecodeBatch::Cancel(RequestId request, Epoch up_to) {
  DCHECK(logits_.empty());
  if (Planted(PlantedBug::kCancelsEveryone)) return CancelAll();
  Remember(request, up_to);
  std::vector<Guest*> found;
  for (auto it = guests_.lower_bound({request, 0}); it != guests_.end(); ++it) {
    if (it->first.first != request || it->first.second > up_to) break;
    found.push_back(it->second.get());
  }
  for (Guest* guest : found) End(guest, EndReason::kCancelled, {}, absl::InfiniteFuture());
}

void DecodeBatch::CancelAll() {
  std::vector<Guest*> found;
  for (const auto& [key, guest] : guests_) found.push_back(guest.get());
  for (Guest* guest : found) {
    Remember(guest->key.first, guest->key.second);
    End(guest, EndReason::kCancelled, {}, absl::InfiniteFuture());
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

absl::Time DecodeBatch::DeadlineOf(const Guest& guest) const {
  switch (GuestState(guest.state)) {
    case GuestState::kExpected:
      return guest.progress + options_.kv_timeout;
    case GuestState::kOrphan:
      if (Planted(PlantedBug::kOrphansKept)) break;
      return guest.progress + options_.orphan_timeout;
    case GuestState::kReady:
    case GuestState::kDecoding:
      return guest.progress + options_.wait_timeout;
    case GuestState::kEnded:
      break;
  }
  return absl::InfiniteFuture();
}

void DecodeBatch::OnTime(absl::Time now) {
  DCHECK(logits_.empty());
  std::vector<Guest*> due;
  for (const auto& [key, guest] : guests_)
    if (DeadlineOf(*guest) <= now) due.push_back(guest.get());
  for (Guest* guest : due) {
    if (guest->state == GuestState::kOrphan) {
      LogWarn("handoff of a request this worker was never told of: pages given back %d",
              static_cast<int>(guest->kv->pages.size()));
      guest->state = GuestState::kEnded;
      pool_->Give(guest->kv->pages);
      guests_.erase(guest->key);
      continue;
    }
    const int state = static_cast<int>(GuestState(guest->state));
    End(guest, EndReason::kFailed,
        absl::StrFormat("decode: %s for %s without progress", GuestTable().states[state].name,
                        absl::FormatDuration(now - guest->progress)),
        absl::InfiniteFuture());
  }
}

absl::Time DecodeBatch::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [key, guest] : guests_) next = std::min(next, DeadlineOf(*guest));
  return next;
}

// now: infinite = the guest did not end by computing.
void DecodeBatch::End(Guest* guest, EndReason reason, std::string message, absl::Time now,
                      PartFault fault) {
  PartEnded part;
  part.request_id = guest->key.first;
  part.epoch = guest->key.second;
  part.reason = reason;
  part.fault = fault;
  part.message = std::move(message);
  guest->state = GuestState::kEnded;
  if (guest->kv.has_value()) {
    part.transfer_us = guest->kv->transfer_us;
    if (reason != EndReason::kStopToken || !Planted(PlantedBug::kRowKeepsPages))
      pool_->Give(guest->kv->pages);
  } else {
    // Its KV may still be on the way.
    effects_.emplace_back(TransferCommand(
        CancelHandoff{.ticket_id = guest->request->ticket_id, .epoch = guest->key.second}));
  }
  if (guest->first_step != absl::InfiniteFuture()) {
    part.queue_us = absl::ToInt64Microseconds(guest->first_step - guest->arrived);
    if (now != absl::InfiniteFuture())
      part.compute_us = absl::ToInt64Microseconds(now - guest->first_step);
  }
  effects_.emplace_back(WorkerEvent(std::move(part)));
  std::erase(rows_, guest);
  std::erase(ready_, guest);
  guests_.erase(guest->key);
}

// --- one step

DecodeBatch::Guest* DecodeBatch::YoungestToPreempt() const {
  const auto uncovered = [this](const Guest* guest) { return !IsCovered(*guest); };
  if (const auto it = std::find_if(ready_.rbegin(), ready_.rend(), uncovered); it != ready_.rend())
    return *it;
  const auto it = std::find_if(rows_.rbegin(), rows_.rend(), uncovered);
  CHECK(it != rows_.rend());
  return *it;
}

// The oldest row first: it takes what there is, and it is the last to be preempted.
void DecodeBatch::Grow(absl::Time now, int reclaimable) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    Guest* const guest = rows_[i];
    bool preempted = false;
    while (!preempted && RoomLeft(*guest) == 0 && !pool_->Take(1, &guest->kv->pages)) {
      if (reclaimable-- > 0) break;
      Guest* const victim = YoungestToPreempt();
      preempted = victim == guest;
      End(victim, EndReason::kPreempted, {}, now);
    }
    if (preempted) --i;  // it was the last one that is not covered; its place has been taken
  }
}

int DecodeBatch::Contribute(absl::Time now, int reclaimable, StepBuilder* builder) {
  DCHECK(logits_.empty());
  while (!ready_.empty() && n_rows() < options_.max_batch) {
    ready_.front()->state = GuestState::kDecoding;
    ready_.front()->first_step = now;
    rows_.push_back(ready_.front());
    ready_.pop_front();
  }
  Grow(now, reclaimable);
  int n = 0;
  for (const Guest* guest : rows_) {
    if (RoomLeft(*guest) == 0) {
      logits_.push_back(-1);
      continue;
    }
    const std::span<const int32_t> pages(guest->kv->pages);
    const DecodeRequest& request = *guest->request;
    const int row =
        builder->AddPiece(std::span(&guest->token, 1), guest->position,
                          pages.first(pool_->layout().PagesFor(guest->position + 1)),
                          options_.rope.RangeOf(int64_t{request.n_prompt} + request.max_tokens));
    logits_.push_back(builder->WantLogits(row));
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
                            .params = rows_[i]->request->sampling,
                            .position = rows_[i]->position + 1});
  }
  sampled_.resize(sample_rows_.size());
  sampler->SampleRows(sample_rows_, sampled_);

  std::vector<std::pair<Guest*, EndReason>> ended;
  for (size_t i = 0, row = 0; i < logits_.size(); ++i) {
    if (logits_[i] < 0) continue;
    Guest* guest = rows_[i];
    const DecodeRequest& request = *guest->request;
    const std::span<const float> logits = sample_rows_[row].logits;
    const SampledToken sampled = sampled_[row++];
    guest->token = sampled.token;
    ++guest->position;
    ++guest->made;
    guest->progress = now;
    Trim(guest);
    effects_.emplace_back(
        WorkerEvent(TokenOut{.request_id = request.request_id,
                             .epoch = request.epoch,
                             .position = guest->position,
                             .token = sampled.token,
                             .logprob = sampled.logprob,
                             .digest = request.want_digests ? LogitsDigest(logits, 0) : 0}));
    const std::vector<int32_t>& stops = request.stop_tokens;
    if (std::find(stops.begin(), stops.end(), sampled.token) != stops.end())
      ended.emplace_back(guest, EndReason::kStopToken);
    else if (guest->made == request.max_tokens)
      ended.emplace_back(guest, EndReason::kLength);
  }
  logits_.clear();
  for (const auto& [guest, reason] : ended) End(guest, reason, {}, now);
}

void DecodeBatch::TakeEffects(std::vector<DecodeEffect>* out) {
  for (DecodeEffect& effect : effects_) out->push_back(std::move(effect));
  effects_.clear();
}

// --- what others must know

int DecodeBatch::n_waiting() const {
  int waiting = 0;
  for (const auto& [key, guest] : guests_) waiting += guest->request.has_value();
  return waiting - n_rows();
}

int DecodeBatch::expected_pages() const {
  int pages = 0;
  for (const auto& [key, guest] : guests_)
    if (!guest->kv.has_value()) pages += PagesOf(*guest->request) + 1;
  return pages;
}

int DecodeBatch::pages_held() const {
  int pages = 0;
  for (const auto& [key, guest] : guests_)
    if (guest->kv.has_value()) pages += CountPages(guest->kv->pages);
  return pages;
}

int DecodeBatch::growth_pages() const {
  constexpr int kStepsAhead = 16;  // more than pages take to come back from the transfer room
  return static_cast<int>(std::count_if(rows_.begin(), rows_.end(), [this](const Guest* guest) {
    return !IsCovered(*guest) && RoomLeft(*guest) < kStepsAhead;
  }));
}

int DecodeBatch::steps_to_first_end() const {
  int steps = 0;
  for (const Guest* guest : rows_) {
    const int left = guest->request->max_tokens - guest->made;
    if (steps == 0 || left < steps) steps = left;
  }
  return steps;
}

}  // namespace baton
