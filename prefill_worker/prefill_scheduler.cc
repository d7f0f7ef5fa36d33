#include "prefill_worker/prefill_scheduler.h"

#include <algorithm>
#include <memory>
#include <span>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "engine/sampling/sequence_sampling.h"
#include "prefill_worker/prompt_messages.h"
#include "prefill_worker/prompt_scores.h"

namespace baton {

using Phase = PromptState;

PrefillScheduler::PrefillScheduler(const PrefillOptions& options, const PrefillFacts& facts,
                                   KvPool* pool)
    : options_(options),
      facts_(facts),
      pages_(pool, options.reuse_kv),
      queue_(options.stretch),
      slice_cache_(options.kept_slice_time) {
  BATON_CHECK(facts.vocab > 0 && facts.max_context > 0 && options.open_ahead > 0);
}

// --- events

void PrefillScheduler::Admit(PrefillRequest request, absl::Time now, SharedGrammar grammar) {
  for (const auto& prompt : queue_.prompts())
    if (prompt->request.request_id == request.request_id && prompt->request.epoch >= request.epoch)
      return;  // said twice, or late
  auto next = std::make_unique<Prompt>(facts_, options_.transitions, pages_.layout().page_tokens,
                                       std::move(request), next_serial_++, now);
  next->grammar = std::move(grammar);
  EndEarlier(*next);
  absl::Status status = CheckRequest(next->request, facts_, pages_.layout(), pages_.total());
  if (n_prompts() >= options_.max_prompts)
    status = absl::ResourceExhaustedError(
        absl::StrFormat("prefill queue full (%d prompts)", n_prompts()));
  Prompt* prompt = queue_.Add(std::move(next));
  if (!status.ok()) End(prompt, EndReason::kFailed, std::string(status.message()));
}

void PrefillScheduler::Promised(const HandoffPromised& event, absl::Time now) {
  Prompt* prompt = queue_.FindOutput(event.ticket_id).prompt;
  if (prompt == nullptr || prompt->phase != Phase::kOpening) return;
  prompt->phase = Phase::kPromised;
  prompt->progress = now;
  prompt->no_room = false;
}

void PrefillScheduler::NoRoom(const HandoffNoRoom& event) {
  Prompt* prompt = queue_.FindOutput(event.ticket_id).prompt;
  if (prompt == nullptr || prompt->phase != Phase::kOpening) return;
  prompt->no_room = true;
  if (!prompt->request.wants_first_token) return;  // the next rank takes pages in its own time
  Emit(NoRoomNotice{.request_id = prompt->request.request_id,
                    .epoch = prompt->request.epoch,
                    .expected_wait_us = event.expected_wait_us});
}

void PrefillScheduler::Ended(const HandoffEnded& event, absl::Time now) {
  BATON_DCHECK(pieces_.empty());
  const auto [prompt, slice, output] = queue_.FindOutput(event.ticket_id);
  if (prompt == nullptr) return;
  prompt->progress = now;
  prompt->transfer_us = event.transfer_us;
  output->is_open = false;
  if (prompt->phase == Phase::kEnding) return EndIfReleased(prompt);
  // Once the first token is there, no other rank needs KV any more.
  const bool is_unneeded = prompt->request.wants_first_token &&
                           prompt->phase == Phase::kCommitting && output->to.ticket.is_named();
  if ((output->committed && event.status.ok()) || is_unneeded) return EndIfHandedOver(prompt);
  Break(prompt, "handoff", event.ticket_id, event.status);
}

// A handoff that its other end gave up says nothing about that end: it may have had to.
void PrefillScheduler::Break(Prompt* prompt, const char* what, const TicketId& handoff,
                             const absl::Status& status) {
  const bool given_up = absl::IsCancelled(status) || absl::IsAborted(status);
  prompt->fault = given_up ? PartFault::kPeer : PartFault::kHandoff;
  if (!given_up) prompt->broken = handoff;
  prompt->keep = true;
  Stop(prompt, EndReason::kFailed, absl::StrFormat("%s: %s", what, status.ToString()));
}

void PrefillScheduler::Failed(const InflowFailed& event, absl::Time now) {
  BATON_DCHECK(pieces_.empty());
  const auto [prompt, slice, output] = queue_.FindInflow(event.ticket_id);
  if (prompt == nullptr) return;
  prompt->progress = now;
  slice->inflow_open = false;
  if (prompt->phase == Phase::kEnding) return EndIfReleased(prompt);
  Break(prompt, "inflow", event.ticket_id, event.status);
}

void PrefillScheduler::Cancel(RequestId request, Epoch up_to) {
  BATON_DCHECK(pieces_.empty());
  for (Prompt* prompt : queue_.Select([&](const Prompt& p) {
         return p.request.request_id == request && p.request.epoch <= up_to;
       }))
    GiveUp(prompt);
  DiscardLeft([&](const Prompt& left) {
    return left.request.request_id == request && left.request.epoch <= up_to;
  });
}

void PrefillScheduler::CancelAll() {
  for (Prompt* prompt : queue_.Select([](const Prompt&) { return true; })) GiveUp(prompt);
  DiscardLeft([](const Prompt&) { return true; });
}

void PrefillScheduler::GiveUp(Prompt* prompt) {
  prompt->keep = false;
  Stop(prompt, EndReason::kCancelled, {});
}

void PrefillScheduler::Abandon() {
  BATON_DCHECK(pieces_.empty());
  while (n_prompts() > 0) {
    queue_.prompts().back()->keep = false;
    End(queue_.prompts().back().get(), EndReason::kCancelled, {});
  }
  DiscardLeft([](const Prompt&) { return true; });
}

void PrefillScheduler::OnTime(absl::Time now) {
  BATON_DCHECK(pieces_.empty());
  for (Prompt* prompt : queue_.Select(
           [&](const Prompt& p) { return p.phase != Phase::kEnding && now >= Deadline(p); }))
    Stop(prompt, EndReason::kFailed,
         absl::StrFormat("prefill: %s for %s without progress",
                         PromptTable().states[static_cast<int>(Phase(prompt->phase))].name,
                         absl::FormatDuration(now - prompt->progress)));
  DiscardLeft([&](const Prompt& left) { return now >= slice_cache_.Deadline(left); });
}

absl::Time PrefillScheduler::NextDeadline() const {
  absl::Time next = slice_cache_.NextDeadline();
  for (const auto& prompt : queue_.prompts())
    if (prompt->phase != Phase::kEnding) next = std::min(next, Deadline(*prompt));
  return next;
}

absl::Time PrefillScheduler::Deadline(const Prompt& prompt) const {
  return prompt.progress + options_.wait_timeout;
}

// Ends a prompt now, or when its handoffs have: until then pages may still be read or written.
void PrefillScheduler::Stop(Prompt* prompt, EndReason reason, std::string message) {
  if (prompt->phase == Phase::kEnding) return;
  if (slice_ == prompt) slice_ = nullptr;
  if (!prompt->in_transfer()) return End(prompt, reason, std::move(message));
  prompt->phase = Phase::kEnding;
  prompt->reason = reason;
  prompt->message = std::move(message);
  const auto cancel = [&](const TicketId& ticket) {
    Emit(CancelHandoff{.ticket_id = ticket, .epoch = prompt->request.epoch});
  };
  for (const PromptSlice& slice : prompt->slices) {
    for (const SliceOutput& output : slice.outputs)
      if (output.is_open) cancel(output.id());
    if (slice.inflow_open) cancel(slice.inflow_id);
  }
}

void PrefillScheduler::EndIfReleased(Prompt* prompt) {
  if (!prompt->in_transfer()) End(prompt, prompt->reason, std::move(prompt->message));
}

// The pages of one whose tokens follow here go to the decode batch then.
void PrefillScheduler::EndIfHandedOver(Prompt* prompt) {
  if (prompt->phase != Phase::kCommitting || prompt->in_transfer()) return;
  if (!prompt->is_remote && prompt->first_output() != nullptr)
    effects_.emplace_back(MakeArrived(prompt));
  prompt->keep = true;
  End(prompt, EndReason::kLength, {});
}

void PrefillScheduler::End(Prompt* prompt, EndReason reason, std::string message) {
  if (slice_ == prompt) slice_ = nullptr;
  Emit(MakeEnded(*prompt, reason, std::move(message)));
  prompt->phase = Phase::kEnded;
  std::unique_ptr<Prompt> ended = queue_.Remove(prompt);
  if (ended->keep && ended->is_continuable()) return slice_cache_.Add(std::move(ended));
  Discard(std::move(ended));
}

// --- one step

// Heads in their turn, wherever they stand (docs/RELAY.md, order of pages).
bool PrefillScheduler::TakesPagesFirst(const Prompt& prompt) const {
  return prompt.is_remote && prompt.request.wants_first_token &&
         facts_.self < prompt.first_output()->to.peer.incarnation;
}

void PrefillScheduler::SendOpens(absl::Time now) {
  int ahead = queue_.OpenedAhead();
  while (ahead < options_.open_ahead) {
    // Prompts that could start and lack pages come before those that would only wait with them.
    Prompt* next = queue_.NextToOpen([this](const Prompt& p) {
      return !TakesPagesFirst(p) || (pages_.wanted() == 0 && !queue_.AwaitsSlices(p));
    });
    if (next == nullptr) return;
    if (TakesPagesFirst(*next) && !HoldPages(next)) continue;
    next->phase = Phase::kOpening;
    next->progress = now;
    ++ahead;
    Open(next->first_output());
  }
}

void PrefillScheduler::Open(SliceOutput* output) {
  output->is_open = true;
  Emit(MakeOpen(output->to));
}

int PrefillScheduler::Contribute(int budget, int kept_pages, absl::Time now, StepBuilder* builder,
                                 int scored_cost) {
  BATON_DCHECK(pieces_.empty());
  pages_.BeginTurn(kept_pages);
  const int before = builder->n_tokens();
  bool may_start = true, slice_is_next = false;
  for (Prompt* prompt : queue_.InOrder()) {
    if (budget <= 0) break;
    // Prompts after a slice that continues wait for it; but other ranks may await their inflow.
    if (slice_is_next && !prompt->is_rank) continue;
    if (prompt->phase != Phase::kRunning && prompt->phase != Phase::kInflow) {
      if (!TakePagesInTurn(prompt, may_start, now)) {
        // Smaller prompts may pass one that waits for pages, but not for ever.
        if (queue_.IsAged(*prompt) && prompt->phase != Phase::kEnding) may_start = false;
        continue;
      }
    }
    if (!RunsInSteps(prompt)) {
      ChooseSlice(prompt, now);
      slice_is_next |= prompt == slice_ && NextBlock(1).has_value();
    }
    if (!RunsInSteps(prompt)) continue;
    const int cost = prompt->is_scored() ? scored_cost : 1;
    budget -= cost * AddPiece(prompt, std::max(1, budget / cost), now, builder);
  }
  for (const Piece& piece : pieces_) queue_.CountOvertaking(*piece.prompt, piece.end - piece.begin);
  SendOpens(now);
  return builder->n_tokens() - before;
}

// may_start: nobody who is before it waits for pages.
bool PrefillScheduler::TakePagesInTurn(Prompt* prompt, bool may_start, absl::Time now) {
  const int wanted = pages_.wanted();
  if (may_start && TakePages(prompt, now)) return true;
  if (!prompt->request.pages_at_once || queue_.AwaitsSlices(*prompt)) return false;
  pages_.ForgetWanted(wanted);
  prompt->fault = PartFault::kPages;
  Stop(prompt, EndReason::kFailed,
       absl::StrFormat("%d pages of KV are not free at once, and a rank that stands out of the "
                       "order of workers may not wait for them",
                       pages_.layout().PagesFor(prompt->size())));
  return false;
}

bool PrefillScheduler::TakePages(Prompt* prompt, absl::Time now) {
  if (!HoldPages(prompt)) return false;
  if (std::exchange(prompt->awaits, true)) return true;
  for (PromptSlice& slice : prompt->slices) {
    if (!slice.has_inflow()) continue;
    slice.inflow_open = true;
    Emit(MakeAwait(*prompt, slice, pages_.layout().page_tokens));
  }
  if (!prompt->slice().has_inflow()) return true;
  prompt->phase = Phase::kInflow;
  prompt->progress = now;
  return true;
}

// Starts the prompt: its first chunk or block follows.
void PrefillScheduler::Run(Prompt* prompt, absl::Time now) {
  prompt->phase = Phase::kRunning;
  if (prompt->at == 0) prompt->first_step = now;
  PromptSlice& slice = prompt->slice();
  for (SliceOutput& output : slice.outputs)
    if (!output.is_open && output.to.peer.incarnation != facts_.self) Open(&output);
  const int n_layers = pages_.layout().n_layers();
  // Hands on what was there before the slice. The decode worker got it meanwhile.
  if (prompt->is_for_rank())
    AnnounceTo(*prompt, slice, 0, n_layers, 0, slice.lacks_from / pages_.layout().page_tokens);
  if (!slice.has_inflow() || slice.in_steps)
    AnnounceTokens(*prompt, 0, n_layers, slice.lacks_from, slice.first_own());
}

int PrefillScheduler::AddPiece(Prompt* prompt, int budget, absl::Time now, StepBuilder* builder) {
  if (MissesInflow(prompt->slice())) return 0;
  if (prompt->phase != Phase::kRunning) Run(prompt, now);
  const int32_t done = prompt->slice().done;
  int n = std::min(prompt->slice().end - done, budget);
  if (options_.chunk_tokens > 0) n = std::min(n, options_.chunk_tokens);
  Piece piece{prompt, done, done + n, -1, 0, 0};
  const std::span<const int32_t> tokens(prompt->request.tokens);
  const std::span<const int32_t> pages(prompt->pages);
  const int row =
      builder->AddPiece(tokens.subspan(piece.begin, n), piece.begin,
                        pages.first(pages_.layout().PagesFor(piece.end)), prompt->range);
  const bool is_last = piece.end == prompt->size() && !prompt->is_for_rank();
  if (prompt->is_scored()) piece.scores = builder->WantScores(row, row + n - (is_last ? 1 : 0));
  if (is_last) piece.logits = builder->WantLogits(row + n - 1);
  pieces_.push_back(piece);
  return n;
}

int64_t PrefillScheduler::AnnouncedBytesPerLayer() const {
  const KvLayout& layout = pages_.layout();
  int64_t pages = 0;
  for (const Piece& piece : pieces_) {
    if (!piece.prompt->is_remote) continue;
    const bool last = piece.end == piece.prompt->size();
    pages += (last ? layout.PagesFor(piece.end) : piece.end / layout.page_tokens) -
             piece.begin / layout.page_tokens;
  }
  return pages * (layout.page_bytes / layout.n_layers());  // layers may differ in width
}

void PrefillScheduler::LayersDone(int to) {
  for (Piece& piece : pieces_) {
    const int from = std::exchange(piece.announced, to);
    AnnounceTokens(*piece.prompt, from, to - from, piece.begin, piece.end);
  }
}

// Full pages only: a page begun in an earlier chunk is announced when a chunk fills it.
void PrefillScheduler::AnnounceTokens(const Prompt& prompt, int plane, int n_planes, int begin,
                                      int end) {
  const KvLayout& layout = pages_.layout();
  const bool last = end == prompt.size();
  Announce(prompt, plane, n_planes, begin / layout.page_tokens,
           last ? layout.PagesFor(end) : end / layout.page_tokens);
}

void PrefillScheduler::Announce(const Prompt& prompt, int plane, int n_planes, int first_page,
                                int end_page) {
  AnnounceTo(prompt, prompt.slice(), plane, n_planes, first_page, end_page);
  // The decode worker, which computes nothing before the last slice is there, gets all KV at once.
  if (prompt.request.wants_first_token && !prompt.is_last_slice())
    AnnounceTo(prompt, prompt.slices.back(), plane, n_planes, first_page, end_page);
}

// By the open outputs of `slice`, to each what is in its range.
void PrefillScheduler::AnnounceTo(const Prompt& prompt, const PromptSlice& slice, int plane,
                                  int n_planes, int first_page, int end_page) {
  for (const SliceOutput& output : slice.outputs) {
    const int from = std::max(first_page, output.to.first_page);
    const int to = std::min(end_page, output.end_page());
    if (output.is_open && n_planes > 0 && from < to)
      Emit(MakeCells(prompt, output.to, plane, n_planes, from, to));
  }
}

void PrefillScheduler::FirstToken(Prompt* prompt, std::span<const float> logits, Sampler* sampler,
                                  absl::Time now) {
  const PrefillRequest& request = prompt->request;
  SequenceSampling sampling(request.sampling, request.stop_tokens, request.tokens,
                            request.n_generated, prompt->grammar.get());
  sampling.MakeMask();
  SampledToken sampled = sampler->Sample(logits, sampling, prompt->size());
  sampling.Push(sampled.token);
  if (!sampling.status().ok()) {
    prompt->fault = PartFault::kGrammar;
    Stop(prompt, EndReason::kFailed, std::string(sampling.status().message()));
    return;
  }
  Emit(MakeComputed(*prompt, now));
  Emit(TokenOut{.request_id = request.request_id,
                .epoch = request.epoch,
                .position = prompt->size(),
                .token = sampled.token,
                .logprob = sampled.logprob,
                .digest = request.want_digests ? LogitsDigest(logits, 0) : 0,
                .logprobs = std::move(sampled.logprobs)});
  prompt->first_token = sampled.token;
  prompt->phase = Phase::kCommitting;
  if (prompt->is_remote) return Commit(prompt->slice(), prompt->first_output(), sampled.token);
  EndIfHandedOver(prompt);
}

void PrefillScheduler::Commit(const PromptSlice& slice, SliceOutput* output, int32_t first_token) {
  output->committed = true;
  Emit(MakeCommit(slice, output->to, first_token));
}

void PrefillScheduler::StepDone(Backend* backend, Sampler* sampler, absl::Time now) {
  for (const Piece& piece : pieces_) {
    Prompt* const prompt = piece.prompt;
    PromptSlice& slice = prompt->slice();
    slice.done = piece.end;
    if (prompt->request.epoch > 1) prompt->recomputed += piece.end - piece.begin;
    prompt->progress = now;
    if (prompt->is_for_rank()) {
      if (slice.is_computed()) SliceComputed(prompt);
      continue;
    }
    pages_.Enter(prompt);
    pages_.Trim(prompt);
    if (prompt->is_scored()) {
      const ScoredRows rows{piece.begin, piece.end, piece.scores};
      for (PromptLogprobs& told : ScorePrompt(*prompt, rows, backend, sampler))
        Emit(std::move(told));
    }
    if (slice.is_computed())
      FirstToken(prompt, backend->logits(piece.logits), sampler, now);  // may end the prompt
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
  for (const auto& prompt : queue_.prompts())
    if (prompt->phase != Phase::kEnding) tokens += prompt->remaining();
  return tokens;
}

double PrefillScheduler::queued_pairs() const {
  double pairs = 0;
  for (const auto& prompt : queue_.prompts())
    if (prompt->phase != Phase::kEnding) pairs += prompt->remaining_pairs();
  return pairs;
}

int PrefillScheduler::n_running() const {
  return static_cast<int>(std::count_if(queue_.prompts().begin(), queue_.prompts().end(),
                                        [](const auto& p) { return p->phase == Phase::kRunning; }));
}

int PrefillScheduler::pages_held() const {
  int pages = 0;
  for (const auto& prompt : queue_.prompts()) pages += CountPages(prompt->pages);
  for (const auto& prompt : slice_cache_.left()) pages += CountPages(prompt->pages);
  return pages;
}

}  // namespace baton
