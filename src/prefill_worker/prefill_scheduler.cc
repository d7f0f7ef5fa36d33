#include "prefill_worker/prefill_scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/planted_bug.h"

namespace baton {

struct PrefillScheduler::Prompt {
  explicit Prompt(TransitionCounts* transitions) : phase(PromptTable(), transitions) {}

  PrefillRequest request;
  MachineState<Phase> phase;
  bool no_room = false;  // of kOpening: the sink has no pages yet
  int64_t serial = 0;
  int32_t done = 0;       // tokens whose KV is in `pages`
  int64_t overtaken = 0;  // tokens computed for prompts admitted later while this one could run
  std::vector<int32_t> pages;
  PrefixChain chain;  // of the pages found in or entered into the index
  absl::Time admitted, first_step;
  absl::Time progress;                    // since then it has got nowhere
  bool handing_over = false;              // OPEN went out, and the handoff has not ended
  bool inflow_open = false;               // its pages may still be written by it
  int32_t inflow_planes = 0;              // that have arrived
  bool waits_for_all = false;             // of its inflow, before it runs
  EndReason reason = EndReason::kLength;  // of kEnding
  PartFault fault = PartFault::kOwn;
  std::string message;
  int64_t transfer_us = 0;

  int32_t size() const { return static_cast<int32_t>(request.tokens.size()); }
  int32_t remaining() const { return size() - done; }
  bool has_inflow() const { return request.inflow.tokens > 0; }
  // A handoff may still read or write its pages.
  bool in_transfer() const { return handing_over || inflow_open; }
};

PrefillScheduler::PrefillScheduler(const PrefillOptions& options, KvPool* pool)
    : options_(options), pool_(pool) {
  CHECK(options.vocab > 0 && options.max_context > 0 && options.open_ahead > 0);
  if (options.reuse_kv) index_ = std::make_unique<PrefixIndex>(pool);
}

PrefillScheduler::~PrefillScheduler() = default;

bool PrefillScheduler::IsRemote(const Prompt& prompt) const {
  const Incarnation sink = prompt.request.sink.incarnation;
  return sink != 0 && sink != options_.self;
}

RopeRange PrefillScheduler::RangeOf(const Prompt& prompt) const {
  return options_.rope.RangeOf(std::max(prompt.request.most_tokens, prompt.size()));
}

bool PrefillScheduler::MissesInflow(const Prompt& prompt) const {
  return prompt.has_inflow() && prompt.inflow_planes < pool_->layout().n_layers();
}

bool PrefillScheduler::CanRun(const Prompt& prompt) const {
  return prompt.phase == Phase::kPromised || prompt.phase == Phase::kInflow ||
         prompt.phase == Phase::kRunning || (prompt.phase == Phase::kQueued && !IsRemote(prompt));
}

bool PrefillScheduler::IsAged(const Prompt& prompt) const {
  constexpr int64_t kBaseTokens = 256;  // so that short prompts age by a few chunks, not at once
  return prompt.overtaken > options_.stretch * (prompt.size() + kBaseTokens) &&
         !Planted(PlantedBug::kNeverAges);
}

// --- events

std::string PrefillScheduler::WhyRefused(const PrefillRequest& request) const {
  const auto n = static_cast<int64_t>(request.tokens.size());
  if (n_prompts() >= options_.max_prompts)
    return absl::StrFormat("prefill queue full (%d prompts)", n_prompts());
  if (n == 0) return "empty prompt";
  if (n > options_.max_context)
    return absl::StrFormat("prompt of %d tokens, context of %d", n, options_.max_context);
  for (const int32_t token : request.tokens)
    if (token < 0 || token >= options_.vocab)
      return absl::StrFormat("token id %d, vocabulary of %d", token, options_.vocab);
  const int page_tokens = pool_->layout().page_tokens;
  const int32_t inflow = request.inflow.tokens;
  if (inflow < 0 || inflow >= n || inflow % page_tokens != 0)
    return absl::StrFormat("an inflow of %d tokens before a prompt of %d, pages of %d", inflow, n,
                           page_tokens);
  const Incarnation sink = request.sink.incarnation;
  if (request.is_head && (n % page_tokens != 0 || sink == 0 || sink == options_.self))
    return absl::StrFormat("a head's slice of %d tokens for worker %016x", n, sink);
  const int kv_pages = pool_->layout().PagesFor(static_cast<int>(n));
  int pages = kv_pages;
  if (sink != 0) {
    const bool too_few = !request.is_head && request.ticket.promise_pages < kv_pages;
    if (request.ticket.kv_pages != kv_pages || too_few)
      return absl::StrFormat("ticket of %d KV pages, %d promised; the prompt has %d",
                             request.ticket.kv_pages, request.ticket.promise_pages, kv_pages);
    if (sink == options_.self) pages = request.ticket.promise_pages;
  }
  if (pages > pool_->total())
    return absl::StrFormat("needs %d KV pages, this worker has %d", pages, pool_->total());
  return {};
}

void PrefillScheduler::Admit(PrefillRequest request, absl::Time now) {
  for (const auto& prompt : prompts_)
    if (prompt->request.request_id == request.request_id && prompt->request.epoch >= request.epoch)
      return;  // said twice, or late
  if (request.epoch > 1) Cancel(request.request_id, request.epoch - 1);
  std::string refusal = WhyRefused(request);
  auto prompt = std::make_unique<Prompt>(options_.transitions);
  prompt->request = std::move(request);
  prompt->serial = next_serial_++;
  prompt->done = prompt->request.inflow.tokens;
  prompt->admitted = prompt->progress = now;
  prompts_.push_back(std::move(prompt));
  if (!refusal.empty()) End(prompts_.back().get(), EndReason::kFailed, std::move(refusal));
}

PrefillScheduler::Prompt* PrefillScheduler::Find(const TicketId& ticket) {
  for (const auto& prompt : prompts_)
    if (prompt->phase != Phase::kQueued && IsRemote(*prompt) && prompt->request.ticket.id == ticket)
      return prompt.get();
  return nullptr;
}

PrefillScheduler::Prompt* PrefillScheduler::FindInflow(const TicketId& ticket) {
  for (const auto& prompt : prompts_)
    if (prompt->inflow_open && prompt->request.inflow.ticket_id == ticket) return prompt.get();
  return nullptr;
}

// No step is in progress but a suspended one.
bool PrefillScheduler::MayChange() const {
  return pieces_.empty() || (pieces_.size() == 1 && pieces_[0].prompt->has_inflow());
}

void PrefillScheduler::Promised(const HandoffPromised& event, absl::Time now) {
  Prompt* prompt = Find(event.ticket_id);
  if (prompt == nullptr || prompt->phase != Phase::kOpening) return;
  if (prompt->no_room && Planted(PlantedBug::kPromiseAfterNoRoom)) return;
  prompt->phase = Phase::kPromised;
  prompt->progress = now;
  prompt->no_room = false;
}

void PrefillScheduler::NoRoom(const HandoffNoRoom& event) {
  Prompt* prompt = Find(event.ticket_id);
  if (prompt == nullptr || prompt->phase != Phase::kOpening) return;
  prompt->no_room = true;
  if (prompt->request.is_head) return;  // the tail takes its pages in its own time
  effects_.emplace_back(WorkerEvent(NoRoomNotice{.request_id = prompt->request.request_id,
                                                 .epoch = prompt->request.epoch,
                                                 .expected_wait_us = event.expected_wait_us}));
}

void PrefillScheduler::Ended(const HandoffEnded& event) {
  DCHECK(MayChange());
  Prompt* prompt = Find(event.ticket_id);
  if (prompt == nullptr) return;
  prompt->transfer_us = event.transfer_us;
  prompt->handing_over = false;
  if (prompt->phase == Phase::kEnding) {
    EndIfReleased(prompt);
  } else if (prompt->phase == Phase::kCommitting && event.status.ok()) {
    End(prompt, EndReason::kLength, {});
  } else {
    prompt->fault = PartFault::kHandoff;
    Stop(prompt, EndReason::kFailed, absl::StrFormat("handoff: %s", event.status.ToString()));
    if (Planted(PlantedBug::kFailureEndsAll)) CancelAll();
  }
}

void PrefillScheduler::Arrived(const InflowArrived& event, absl::Time now) {
  Prompt* prompt = FindInflow(event.ticket_id);
  if (prompt == nullptr) return;
  const int32_t before = std::exchange(prompt->inflow_planes, event.n_planes);
  CHECK(before < event.n_planes);
  prompt->progress = now;
  prompt->inflow_open = MissesInflow(*prompt);
  if (prompt->phase == Phase::kEnding)
    EndIfReleased(prompt);
  else if (IsRemote(*prompt))
    Announce(*prompt, before, event.n_planes - before, 0,
             prompt->request.inflow.tokens / pool_->layout().page_tokens);
}

void PrefillScheduler::Failed(const InflowFailed& event) {
  DCHECK(MayChange());
  Prompt* prompt = FindInflow(event.ticket_id);
  if (prompt == nullptr) return;
  prompt->inflow_open = false;
  if (prompt->phase == Phase::kEnding) return EndIfReleased(prompt);
  prompt->fault = PartFault::kHandoff;
  Stop(prompt, EndReason::kFailed, absl::StrFormat("inflow: %s", event.status.ToString()));
}

void PrefillScheduler::Cancel(RequestId request, Epoch up_to) {
  DCHECK(MayChange());
  // End removes from prompts_: collect first.
  order_.clear();
  for (const auto& prompt : prompts_)
    if (prompt->request.request_id == request && prompt->request.epoch <= up_to)
      order_.push_back(prompt.get());
  for (Prompt* prompt : order_) Stop(prompt, EndReason::kCancelled, {});
}

void PrefillScheduler::CancelAll() {
  order_.clear();
  for (const auto& prompt : prompts_) order_.push_back(prompt.get());
  for (Prompt* prompt : order_) Stop(prompt, EndReason::kCancelled, {});
}

void PrefillScheduler::Abandon() {
  DCHECK(MayChange());
  pieces_.clear();
  while (!prompts_.empty()) End(prompts_.back().get(), EndReason::kCancelled, {});
}

void PrefillScheduler::OnTime(absl::Time now) {
  DCHECK(MayChange());
  order_.clear();
  for (const auto& prompt : prompts_)
    if (prompt->phase != Phase::kEnding && now - prompt->progress >= options_.wait_timeout)
      order_.push_back(prompt.get());
  for (Prompt* prompt : order_)
    Stop(prompt, EndReason::kFailed,
         absl::StrFormat("prefill: %s for %s without progress",
                         PromptTable().states[static_cast<int>(Phase(prompt->phase))].name,
                         absl::FormatDuration(now - prompt->progress)));
}

absl::Time PrefillScheduler::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& prompt : prompts_)
    if (prompt->phase != Phase::kEnding)
      next = std::min(next, prompt->progress + options_.wait_timeout);
  return next;
}

// Ends a prompt now, or when its handoffs have: until then pages may still be read or written.
void PrefillScheduler::Stop(Prompt* prompt, EndReason reason, std::string message) {
  if (prompt->phase == Phase::kEnding) return;
  std::erase_if(pieces_, [prompt](const Piece& piece) { return piece.prompt == prompt; });
  if (!prompt->in_transfer()) {
    End(prompt, reason, std::move(message));
    return;
  }
  prompt->phase = Phase::kEnding;
  prompt->reason = reason;
  prompt->message = std::move(message);
  const PrefillRequest& request = prompt->request;
  const auto cancel = [&](const TicketId& ticket) {
    effects_.emplace_back(
        TransferCommand(CancelHandoff{.ticket_id = ticket, .epoch = request.epoch}));
  };
  if (prompt->handing_over) cancel(request.ticket.id);
  if (prompt->inflow_open) cancel(request.inflow.ticket_id);
  if (Planted(PlantedBug::kPagesBackAtCancel)) GivePages(prompt);
}

void PrefillScheduler::EndIfReleased(Prompt* prompt) {
  if (!prompt->in_transfer()) End(prompt, prompt->reason, std::move(prompt->message));
}

void PrefillScheduler::End(Prompt* prompt, EndReason reason, std::string message) {
  prompt->phase = Phase::kEnded;
  GivePages(prompt);
  PartEnded part;
  part.request_id = prompt->request.request_id;
  part.epoch = prompt->request.epoch;
  part.was_prefill = true;
  part.reason = reason;
  part.fault = prompt->fault;
  part.message = std::move(message);
  part.transfer_us = prompt->transfer_us;
  effects_.emplace_back(WorkerEvent(std::move(part)));
  const auto it = std::find_if(prompts_.begin(), prompts_.end(),
                               [prompt](const auto& p) { return p.get() == prompt; });
  CHECK(it != prompts_.end());
  prompts_.erase(it);
}

void PrefillScheduler::GivePages(Prompt* prompt) {
  pool_->Give(prompt->pages);
  prompt->pages.clear();
}

// --- one step

int PrefillScheduler::PagesToStart(const Prompt& prompt) const {
  // Its tokens follow here: what was promised to them is taken up front too.
  if (!IsRemote(prompt) && prompt.request.sink.incarnation != 0)
    return prompt.request.ticket.promise_pages;
  return pool_->layout().PagesFor(prompt.size());
}

bool PrefillScheduler::TakesPagesFirst(const Prompt& prompt) const {
  return IsRemote(prompt) && options_.self < prompt.request.sink.incarnation;
}

bool PrefillScheduler::TakePages(Prompt* prompt) {
  if (!prompt->pages.empty()) return true;
  const int free_before = pool_->free();
  const bool is_long = RangeOf(*prompt) == RopeRange::kLong;
  prompt->chain = {.salt = prompt->request.cache_salt,
                   .last = is_long ? PrefixChain::kLongBeginning : PrefixChain::kBeginning};
  // Pages of an inflow are written, so they are nobody else's.
  if (index_ != nullptr && !prompt->has_inflow()) {
    // The last token is computed in any case, for its logits.
    index_->Hold(std::span(prompt->request.tokens).first(prompt->request.tokens.size() - 1),
                 &prompt->chain, &prompt->pages);
  }
  const int missing = PagesToStart(*prompt) - static_cast<int>(prompt->pages.size());
  if (missing <= pool_->free() - kept_pages_) {
    const auto found = static_cast<int32_t>(prompt->pages.size()) * pool_->layout().page_tokens;
    prompt->done += found;
    reused_tokens_ += found;
    CHECK(pool_->Take(missing, &prompt->pages));
    taken_pages_ += free_before - pool_->free();
    return true;
  }
  if (wanted_pages_ == 0) wanted_pages_ = missing + free_before - pool_->free();
  GivePages(prompt);
  return false;
}

// Its pages that are full are found by others from now on.
void PrefillScheduler::EnterPages(Prompt* prompt) {
  if (index_ == nullptr) return;
  const int page_tokens = pool_->layout().page_tokens;
  const std::span<const int32_t> tokens(prompt->request.tokens);
  const int done = Planted(PlantedBug::kCachedBeforeComputed) ? prompt->size() : prompt->done;
  for (int page = prompt->chain.pages; (page + 1) * page_tokens <= done; ++page)
    index_->Enter(tokens.subspan(static_cast<size_t>(page) * page_tokens, page_tokens),
                  prompt->pages[page], &prompt->chain);
}

// Gives back what no further token sees, if no other worker is to get it.
void PrefillScheduler::Trim(Prompt* prompt) {
  if (IsRemote(*prompt)) return;
  const int passed = pool_->layout().PagesPassed(prompt->done);
  if (passed > 0) pool_->Trim(std::span(prompt->pages).first(passed));
}

PrefillScheduler::Prompt* PrefillScheduler::NextToOpen(bool may_take_pages) const {
  Prompt* next = nullptr;
  for (const auto& prompt : prompts_) {
    if (prompt->phase != Phase::kQueued || !IsRemote(*prompt)) continue;
    if (!may_take_pages && TakesPagesFirst(*prompt)) continue;
    if (next == nullptr || (!IsAged(*next) && (IsAged(*prompt) || prompt->size() < next->size())))
      next = prompt.get();
  }
  return next;
}

void PrefillScheduler::SendOpens(absl::Time now) {
  int ahead = 0;
  for (const auto& prompt : prompts_)
    ahead += IsRemote(*prompt) && (prompt->phase == Phase::kPromised ||
                                   (prompt->phase == Phase::kOpening && !prompt->no_room));
  while (ahead < options_.open_ahead) {
    // Prompts that could start and lack pages come before those that would only wait with them.
    Prompt* next = NextToOpen(wanted_pages_ == 0);
    if (next == nullptr) return;
    if (TakesPagesFirst(*next) && !TakePages(next)) continue;
    next->phase = Phase::kOpening;
    next->progress = now;
    next->handing_over = true;
    ++ahead;
    effects_.emplace_back(TransferCommand(OpenHandoff{.ticket = next->request.ticket,
                                                      .peer = next->request.sink.incarnation,
                                                      .peer_address = next->request.sink.address}));
  }
}

int PrefillScheduler::Contribute(int budget, int kept_pages, bool may_wait, absl::Time now,
                                 StepBuilder* builder) {
  DCHECK(pieces_.empty());
  wanted_pages_ = taken_pages_ = 0;
  kept_pages_ = kept_pages;
  order_.clear();
  for (const auto& prompt : prompts_)
    if (CanRun(*prompt)) order_.push_back(prompt.get());
  std::sort(order_.begin(), order_.end(), [this](const Prompt* a, const Prompt* b) {
    const auto rank = [this](const Prompt* p) {
      const bool aged = IsAged(*p);
      return std::tuple(!aged, aged ? 0 : p->remaining(), p->serial);
    };
    return rank(a) < rank(b);
  });

  const int before = budget;
  bool may_start = true;
  Prompt* waiting = nullptr;  // a slice whose step would be suspended
  for (Prompt* prompt : order_) {
    if (budget <= 0) break;
    if (prompt->phase != Phase::kRunning && prompt->phase != Phase::kInflow) {
      if (!may_start) continue;
      if (!TakePages(prompt)) {
        // Smaller prompts may pass one that waits for pages, but not for ever.
        if (IsAged(*prompt)) may_start = false;
        continue;
      }
      if (prompt->has_inflow()) AwaitPages(prompt, now);
    }
    if (!MissesInflow(*prompt))
      budget -= AddPiece(prompt, budget, now, builder);
    else if (waiting == nullptr && prompt->inflow_planes > 0 && !prompt->waits_for_all)
      waiting = prompt;
  }
  if (pieces_.empty() && may_wait && waiting != nullptr)
    budget -= AddPiece(waiting, budget, now, builder);
  CountOvertaking();
  SendOpens(now);
  return before - budget;
}

// Its inflow may land from now on.
void PrefillScheduler::AwaitPages(Prompt* prompt, absl::Time now) {
  const Inflow& inflow = prompt->request.inflow;
  prompt->phase = Phase::kInflow;
  prompt->progress = now;
  prompt->inflow_open = true;
  AwaitInflow await{.ticket_id = inflow.ticket_id, .epoch = prompt->request.epoch, .pages = {}};
  await.pages.assign(prompt->pages.begin(),
                     prompt->pages.begin() + inflow.tokens / pool_->layout().page_tokens);
  effects_.emplace_back(TransferCommand(std::move(await)));
}

int PrefillScheduler::AddPiece(Prompt* prompt, int budget, absl::Time now, StepBuilder* builder) {
  if (prompt->phase != Phase::kRunning) {
    prompt->phase = Phase::kRunning;
    prompt->first_step = now;
    if (IsRemote(*prompt) && !prompt->has_inflow())
      Announce(*prompt, 0, static_cast<int>(pool_->layout().planes.size()), 0,
               prompt->done / pool_->layout().page_tokens);
  }
  int n = std::min(prompt->remaining(), budget);
  if (options_.chunk_tokens > 0) n = std::min(n, options_.chunk_tokens);
  Piece piece{prompt, prompt->done, prompt->done + n, -1, 0};
  const std::span<const int32_t> tokens(prompt->request.tokens);
  const std::span<const int32_t> pages(prompt->pages);
  const int row =
      builder->AddPiece(tokens.subspan(piece.begin, n), piece.begin,
                        pages.first(pool_->layout().PagesFor(piece.end)), RangeOf(*prompt));
  if (piece.end == prompt->size() && !prompt->request.is_head)
    piece.logits = builder->WantLogits(row + n - 1);
  pieces_.push_back(piece);
  return n;
}

int PrefillScheduler::ready_layers() const {
  int ready = pool_->layout().n_layers();
  for (const Piece& piece : pieces_)
    if (MissesInflow(*piece.prompt)) ready = std::min(ready, piece.prompt->inflow_planes);
  return ready;
}

void PrefillScheduler::Meanwhile(absl::Time now) {
  taken_pages_ = 0;
  SendOpens(now);
}

void PrefillScheduler::GiveWay() {
  CHECK(in_step() && MayChange());
  pieces_[0].prompt->waits_for_all = true;
  pieces_.clear();
}

void PrefillScheduler::CountOvertaking() {
  for (const auto& prompt : prompts_) {
    // Also those whose turn to send OPEN has not come.
    if (!CanRun(*prompt) && prompt->phase != Phase::kQueued) continue;
    for (const Piece& piece : pieces_)
      if (piece.prompt->serial > prompt->serial) prompt->overtaken += piece.end - piece.begin;
  }
}

int64_t PrefillScheduler::AnnouncedBytesPerLayer() const {
  const KvLayout& layout = pool_->layout();
  int64_t pages = 0;
  for (const Piece& piece : pieces_) {
    if (!IsRemote(*piece.prompt)) continue;
    const bool last = piece.end == piece.prompt->size();
    pages += (last ? layout.PagesFor(piece.end) : piece.end / layout.page_tokens) -
             piece.begin / layout.page_tokens;
  }
  return pages * (layout.page_bytes / layout.n_layers());  // layers may differ in width
}

void PrefillScheduler::LayersDone(int to) {
  const int page_tokens = pool_->layout().page_tokens;
  for (Piece& piece : pieces_) {
    // What may be thrown away is not final.
    if (!IsRemote(*piece.prompt) || MissesInflow(*piece.prompt)) continue;
    const int from = std::exchange(piece.announced, to);
    // Full pages only: a page begun in an earlier chunk is announced when a chunk fills it.
    const bool last = piece.end == piece.prompt->size() && !Planted(PlantedBug::kLastPageNotSent);
    const int first_page = piece.begin / page_tokens;
    const int end_page = last ? pool_->layout().PagesFor(piece.end) : piece.end / page_tokens;
    Announce(*piece.prompt, from, to - from, first_page, end_page);
  }
}

void PrefillScheduler::Announce(const Prompt& prompt, int plane, int n_planes, int first_page,
                                int end_page) {
  if (end_page == first_page) return;
  SendCells cells{.ticket_id = prompt.request.ticket.id,
                  .plane = plane,
                  .n_planes = n_planes,
                  .first_page = first_page,
                  .pages = {}};
  cells.pages.assign(prompt.pages.begin() + first_page, prompt.pages.begin() + end_page);
  effects_.emplace_back(TransferCommand(std::move(cells)));
}

void PrefillScheduler::FirstToken(const Piece& piece, const Backend& backend, Sampler* sampler,
                                  absl::Time now) {
  Prompt* prompt = piece.prompt;
  const PrefillRequest& request = prompt->request;
  const std::span<const float> logits = backend.logits(piece.logits);
  const SampledToken sampled = sampler->Sample(logits, request.sampling, prompt->size());
  effects_.emplace_back(WorkerEvent(
      PromptComputed{.request_id = request.request_id,
                     .epoch = request.epoch,
                     .queue_us = absl::ToInt64Microseconds(prompt->first_step - prompt->admitted),
                     .compute_us = absl::ToInt64Microseconds(now - prompt->first_step)}));
  effects_.emplace_back(
      WorkerEvent(TokenOut{.request_id = request.request_id,
                           .epoch = request.epoch,
                           .position = prompt->size(),
                           .token = sampled.token,
                           .logprob = sampled.logprob,
                           .digest = request.want_digests ? LogitsDigest(logits, 0) : 0}));
  if (IsRemote(*prompt)) return Commit(prompt, sampled.token);
  if (request.sink.incarnation != 0) {
    HandoffArrived arrived;
    arrived.ticket_id = request.ticket.id;
    arrived.epoch = request.epoch;
    arrived.request_id = request.request_id;
    arrived.pages = std::move(prompt->pages);
    arrived.record = {.first_token = sampled.token, .n_tokens = prompt->size()};
    prompt->pages.clear();
    effects_.emplace_back(std::move(arrived));
  }
  End(prompt, EndReason::kLength, {});
}

void PrefillScheduler::Commit(Prompt* prompt, int32_t first_token) {
  prompt->phase = Phase::kCommitting;
  effects_.emplace_back(TransferCommand(
      CommitHandoff{.ticket_id = prompt->request.ticket.id,
                    .record = {.first_token = first_token, .n_tokens = prompt->size()}}));
}

void PrefillScheduler::StepDone(const Backend& backend, Sampler* sampler, absl::Time now) {
  for (const Piece& piece : pieces_) {
    piece.prompt->done = piece.end;
    piece.prompt->progress = now;
    EnterPages(piece.prompt);
    Trim(piece.prompt);
    if (piece.end < piece.prompt->size()) continue;
    if (piece.prompt->request.is_head)
      Commit(piece.prompt, 0);
    else
      FirstToken(piece, backend, sampler, now);  // may end the prompt
  }
  pieces_.clear();
}

void PrefillScheduler::TakeEffects(std::vector<PrefillEffect>* out) {
  for (PrefillEffect& effect : effects_) out->push_back(std::move(effect));
  effects_.clear();
}

// --- what others must know

int64_t PrefillScheduler::queued_tokens() const {
  int64_t tokens = 0;
  for (const auto& prompt : prompts_)
    if (prompt->phase != Phase::kEnding) tokens += prompt->remaining();
  return tokens;
}

int PrefillScheduler::n_running() const {
  return static_cast<int>(std::count_if(prompts_.begin(), prompts_.end(),
                                        [](const auto& p) { return p->phase == Phase::kRunning; }));
}

int PrefillScheduler::pages_held() const {
  int pages = 0;
  for (const auto& prompt : prompts_) pages += CountPages(prompt->pages);
  return pages;
}

}  // namespace baton
