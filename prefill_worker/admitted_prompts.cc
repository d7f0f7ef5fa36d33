#include "prefill_worker/admitted_prompts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {

using Phase = PromptState;

namespace {

// Heads take pages in their turn, wherever they stand (docs/RELAY.md, order of pages).
bool TakesPagesFirst(const Prompt& prompt, Incarnation self) {
  return prompt.is_remote && prompt.request.wants_first_token &&
         self < prompt.first_output()->to.peer.incarnation;
}

// Moves the prompt's pages, and its first token, to the decode batch of this worker.
HandoffArrived MakeArrived(Prompt* prompt) {
  HandoffArrived arrived;
  arrived.ticket_id = prompt->first_output()->to.ticket.promise;
  arrived.epoch = prompt->request.epoch;
  arrived.request_id = prompt->request.request_id;
  arrived.pages = std::exchange(prompt->pages, {});
  arrived.record = {.first_token = prompt->first_token, .n_tokens = prompt->size()};
  return arrived;
}

}  // namespace

AdmittedPrompts::AdmittedPrompts(const PrefillOptions& options, const PrefillFacts& facts,
                                 KvPool* pool, PrefixIndex* index,
                                 std::vector<PrefillEffect>* effects)
    : options_(options),
      facts_(facts),
      effects_(*effects),
      pages_(pool, index, options),
      queue_(options.stretch),
      sender_(&pages_.layout(), facts.self, effects) {
  BATON_CHECK(options.open_ahead > 0);
}

// --- events

void AdmittedPrompts::Admit(PrefillRequest request, absl::Time now, SharedGrammar grammar) {
  for (const auto& prompt : queue_.prompts())
    if (prompt->request.request_id == request.request_id && prompt->request.epoch >= request.epoch)
      return;  // said twice, or late
  auto next = std::make_unique<Prompt>(facts_, options_.transitions, pages_.layout().page_tokens,
                                       std::move(request), next_serial_++, now);
  next->grammar = std::move(grammar);
  EndEarlier(*next);
  absl::Status status = CheckRequest(next->request, facts_, pages_.layout(), pages_.total());
  if (status.ok() && queue_.SharesTickets(*next))
    status = absl::InvalidArgumentError("a ticket of the request is not its alone");
  if (queue_.size() >= options_.max_prompts)
    status = absl::ResourceExhaustedError(
        absl::StrFormat("prefill queue full (%d prompts)", queue_.size()));
  Prompt* prompt = queue_.Add(std::move(next));
  if (status.ok()) return pages_.Expect(prompt);
  Stop(prompt, EndReason::kFailed, status);
}

void AdmittedPrompts::On(const HandoffPromised& event, absl::Time now) {
  Prompt* prompt = queue_.FindOutput(event.ticket_id).prompt;
  if (prompt == nullptr || prompt->phase != Phase::kOpening) return;
  prompt->phase = Phase::kPromised;
  prompt->progress = now;
  prompt->no_room = false;
}

void AdmittedPrompts::On(const HandoffNoRoom& event, absl::Time) {
  Prompt* prompt = queue_.FindOutput(event.ticket_id).prompt;
  if (prompt == nullptr || prompt->phase != Phase::kOpening) return;
  prompt->no_room = true;
  prompt->lacks_room = event.expected_wait_us > 0;
  if (!prompt->request.wants_first_token) return;  // the next rank takes pages in its own time
  effects_.emplace_back(WorkerEvent(NoRoomNotice{.request_id = prompt->request.request_id,
                                                 .epoch = prompt->request.epoch,
                                                 .expected_wait_us = event.expected_wait_us}));
}

void AdmittedPrompts::On(const HandoffEnded& event, absl::Time now) {
  const auto [prompt, slice, output] = queue_.FindOutput(event.ticket_id);
  if (prompt == nullptr) return;
  prompt->progress = now;
  if (output == prompt->first_output()) {
    prompt->last_word.transfer_us = event.transfer_us;
    const absl::Duration exposed =
        prompt->opened + absl::Microseconds(event.transfer_us) - prompt->computed;
    if (output->committed && prompt->request.wants_first_token && event.status.ok())
      prompt->last_word.exposed_us = std::max<int64_t>(0, absl::ToInt64Microseconds(exposed));
  }
  output->is_open = false;
  // Once the first token is there, no other rank needs KV any more.
  const bool is_unneeded = prompt->request.wants_first_token &&
                           prompt->phase == Phase::kCommitting && output->to.ticket.is_named();
  const bool is_done = output->committed && event.status.ok();
  if (prompt->phase == Phase::kEnding || is_done || is_unneeded) return EndIfReleased(prompt);
  Break(prompt, "handoff", event.ticket_id, event.status);
}

void AdmittedPrompts::On(const InflowArrived& event, absl::Time now) {
  const auto [prompt, slice, output] = queue_.FindInflow(event.ticket_id);
  if (prompt == nullptr) return;
  const InflowProgress arrived{.planes = event.n_planes, .pages = event.n_pages};
  const InflowProgress before = std::exchange(slice->inflow, arrived);
  BATON_CHECK(before < arrived);
  prompt->progress = now;
  slice->inflow_open = slice->misses_inflow(pages_.layout().n_layers());
  if (prompt->phase == Phase::kEnding) return EndIfReleased(prompt);
  // Before it runs it passes on nothing: the next rank must not begin before it (docs/RELAY.md).
  if (prompt->phase != Phase::kRunning || slice != &prompt->slice()) return;
  sender_.PassOn(*prompt, before);
  HandOverSlice(prompt);
  EndIfReleased(prompt);  // its handoffs may have ended before its inflow
}

void AdmittedPrompts::On(const InflowFailed& event, absl::Time now) {
  const auto [prompt, slice, output] = queue_.FindInflow(event.ticket_id);
  if (prompt == nullptr) return;
  prompt->progress = now;
  slice->inflow_open = false;
  if (prompt->phase == Phase::kEnding) return EndIfReleased(prompt);
  Break(prompt, "inflow", event.ticket_id, event.status);
}

// A handoff that its other end gave up says nothing about that end: it may have had to.
void AdmittedPrompts::Break(Prompt* prompt, const char* what, const TicketId& handoff,
                            const absl::Status& status) {
  const bool given_up = absl::IsCancelled(status) || absl::IsAborted(status);
  if (!given_up) prompt->last_word.ticket_id = handoff;
  prompt->keep = true;
  Stop(prompt, EndReason::kFailed,
       absl::AbortedError(absl::StrFormat("%s: %s", what, status.ToString())),
       given_up ? PartFault::kPeer : PartFault::kHandoff);
}

void AdmittedPrompts::Cancel(RequestId request, Epoch up_to) {
  GiveUp(
      [&](const Prompt& p) { return p.request.request_id == request && p.request.epoch <= up_to; });
}

int AdmittedPrompts::CancelAll(std::optional<RouterId> router) {
  return GiveUp(
      [&](const Prompt& p) { return !router || RouterOf(p.request.request_id) == *router; });
}

int AdmittedPrompts::GiveUp(const std::function<bool(const Prompt&)>& which) {
  int n_ended = 0;
  for (Prompt* prompt : queue_.Select(which)) {
    n_ended += prompt->phase != Phase::kEnding;
    prompt->keep = false;
    Stop(prompt, EndReason::kCancelled);
  }
  pages_.DiscardLeft(which);
  return n_ended;
}

void AdmittedPrompts::Abandon() {
  while (queue_.size() > 0) {
    Prompt* prompt = queue_.prompts().back().get();
    prompt->keep = false;
    prompt->last_word.reason = EndReason::kCancelled;
    End(prompt);
  }
  CancelAll();
}

void AdmittedPrompts::OnTime(absl::Time now) {
  const auto is_due = [&](const Prompt& p) { return p.Deadline(options_) <= now; };
  for (Prompt* prompt : queue_.Select(is_due))
    Stop(prompt, EndReason::kFailed,
         absl::DeadlineExceededError(
             absl::StrFormat("prefill: %s for %s without progress",
                             PromptTable().states[static_cast<int>(Phase(prompt->phase))].name,
                             absl::FormatDuration(now - prompt->progress))));
  pages_.OnTime(now);
}

absl::Time AdmittedPrompts::NextDeadline() const {
  absl::Time next = pages_.NextDeadline();
  for (const auto& prompt : queue_.prompts()) next = std::min(next, prompt->Deadline(options_));
  return next;
}

// --- the end

// Ends earlier attempts at the request of `next`, which may continue their slices.
void AdmittedPrompts::EndEarlier(const Prompt& next) {
  const auto is_earlier = [&](const Prompt& p) {
    return p.request.request_id == next.request.request_id;
  };
  GiveUp([&](const Prompt& p) { return is_earlier(p) && !HasSlicesOf(next, p); });
  for (Prompt* earlier : queue_.Select(is_earlier)) {
    if (earlier->phase == Phase::kEnding) continue;
    earlier->keep = true;
    earlier->progress = next.admitted;
    Stop(earlier, EndReason::kCancelled);
  }
}

void AdmittedPrompts::Stop(Prompt* prompt, EndReason reason, const absl::Status& why,
                           PartFault fault) {
  if (prompt->phase == Phase::kEnding) return;
  prompt->last_word.reason = reason;
  prompt->last_word.message = std::string(why.message());
  prompt->last_word.fault = fault;
  if (!prompt->in_transfer()) return End(prompt);
  prompt->phase = Phase::kEnding;
  sender_.Cancel(*prompt);
}

// Ends a prompt that was stopped, or has handed over all, when no handoff works on its pages. The
// pages of one whose tokens follow here go to the decode batch then.
void AdmittedPrompts::EndIfReleased(Prompt* prompt) {
  if (prompt->in_transfer()) return;
  if (prompt->phase == Phase::kEnding) return End(prompt);
  if (prompt->phase != Phase::kCommitting) return;
  if (!prompt->is_remote && prompt->first_output() != nullptr)
    effects_.emplace_back(MakeArrived(prompt));
  prompt->keep = true;
  End(prompt);
}

void AdmittedPrompts::End(Prompt* prompt) {
  effects_.emplace_back(WorkerEvent(prompt->last_word));
  prompt->phase = Phase::kEnded;
  pages_.Leave(queue_.Remove(prompt));
}

int AdmittedPrompts::pages_held() const {
  int pages = 0;
  for (const auto& prompt : queue_.prompts()) pages += CountPages(prompt->pages);
  for (const auto& left : pages_.left()) pages += CountPages(left->pages);
  return pages;
}

// --- pages and KV

void AdmittedPrompts::SendOpens(absl::Time now) {
  int ahead = queue_.OpenedAhead();
  while (true) {
    // A rank that may not wait for pages waits for no place among those ahead, who may.
    // Prompts that could start and lack pages come before those that would only wait with them.
    const bool full = ahead >= options_.open_ahead;
    Prompt* next = queue_.NextToOpen([&](const Prompt& p) {
      if (full && !p.request.pages_at_once) return false;
      return !TakesPagesFirst(p, facts_.self) || (pages_.wanted() == 0 && !queue_.AwaitsSlices(p));
    });
    if (next == nullptr) return;
    if (TakesPagesFirst(*next, facts_.self) && !HoldPages(next)) {
      BATON_CHECK(pages_.wanted() > 0);  // so it is not found again
      continue;
    }
    next->phase = Phase::kOpening;
    next->progress = next->opened = now;
    ++ahead;
    sender_.Open(next->first_output());
  }
}

bool AdmittedPrompts::HoldPages(Prompt* prompt) {
  // The pages that it will continue with are not free of the earlier attempt's handoffs yet.
  if (prompt->pages.empty() && queue_.AwaitsSlices(*prompt)) return false;
  return pages_.Hold(prompt);
}

bool AdmittedPrompts::TakePages(Prompt* prompt, bool may_start, absl::Time now) {
  // Whoever has pages goes on: the prompt that waits for pages may wait for these.
  if ((may_start || !prompt->pages.empty()) && HoldPages(prompt)) {
    if (std::exchange(prompt->awaits, true)) return true;
    sender_.Await(prompt);
    if (!prompt->slice().has_inflow()) return true;
    prompt->phase = Phase::kInflow;
    prompt->progress = now;
    return true;
  }
  if (!prompt->request.pages_at_once || queue_.AwaitsSlices(*prompt)) return false;
  Stop(prompt, EndReason::kFailed,
       absl::ResourceExhaustedError(
           absl::StrFormat("%d pages of KV are not free at once, and a rank that stands out of the "
                           "order of workers may not wait for them",
                           pages_.layout().PagesFor(prompt->size()))),
       PartFault::kPages);
  return false;
}

void AdmittedPrompts::SliceComputed(Prompt* prompt) {
  if (prompt->at == 0 && !prompt->slice().has_inflow())
    pages_.Enter(prompt);  // nothing writes them any more
  HandOverSlice(prompt);
}

// Hands over what is final of the slice at hand, and goes on to the next slice after the last cell.
void AdmittedPrompts::HandOverSlice(Prompt* prompt) {
  const PromptSlice& slice = prompt->slice();
  // One that takes a computed slice over has to begin first.
  if (!prompt->is_for_rank() || prompt->phase != Phase::kRunning || !slice.is_computed()) return;
  sender_.CommitFinal(prompt);
  if (slice.misses_inflow(pages_.layout().n_layers())) return;
  if (prompt->is_last_slice()) {
    prompt->phase = Phase::kCommitting;
  } else {  // the engine is free for others until the next slice's inflow comes
    ++prompt->at;
    prompt->phase = Phase::kInflow;
  }
}

void AdmittedPrompts::FirstToken(Prompt* prompt, int32_t token) {
  prompt->first_token = token;
  prompt->phase = Phase::kCommitting;
  if (prompt->is_remote) return sender_.Commit(*prompt, prompt->first_output());
  EndIfReleased(prompt);
}

}  // namespace baton
