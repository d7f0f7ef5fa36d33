// PrefillScheduler, second part: ranks of relays, their inflows and the slice that runs.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "prefill_worker/prefill_scheduler.h"
#include "prefill_worker/prompt_messages.h"

namespace baton {

using Phase = PromptState;

bool PrefillScheduler::MissesInflow(const PromptRound& round) const {
  return round.misses_inflow(pages_.layout().n_layers());
}

void PrefillScheduler::Arrived(const InflowArrived& event, absl::Time now) {
  const auto [prompt, round] = queue_.FindInflow(event.ticket_id);
  if (prompt == nullptr) return;
  const InflowProgress arrived{.planes = event.n_planes, .pages = event.n_pages};
  const InflowProgress before = std::exchange(round->inflow, arrived);
  BATON_CHECK(before < arrived);
  prompt->progress = now;
  round->inflow_open = MissesInflow(*round);
  if (prompt->phase == Phase::kEnding) return EndIfReleased(prompt);
  // Before it runs it passes on nothing: the next rank must not begin before it (docs/RELAY.md).
  if (prompt->phase != Phase::kRunning || round != &prompt->round()) return;
  PassOn(*prompt, before);
  CommitIfComplete(prompt);
}

// Passes on the inflow that has arrived since `before`.
void PrefillScheduler::PassOn(const Prompt& prompt, const InflowProgress& before) {
  const PromptRound& round = prompt.round();
  const InflowProgress& now = round.inflow;
  const int from = round.lacks_from / pages_.layout().page_tokens;
  const int end = round.begin / pages_.layout().page_tokens;
  if (now.planes == before.planes)
    return Announce(prompt, now.planes, 1, from + before.pages, from + now.pages);
  Announce(prompt, before.planes, 1, from + before.pages, end);
  Announce(prompt, before.planes + 1, now.planes - before.planes - 1, from, end);
  Announce(prompt, now.planes, 1, from, from + now.pages);
}

// Announces the part of the slice that an earlier attempt computed here, or received from the rank
// that computed it.
void PrefillScheduler::AnnounceProjected(const Prompt& prompt) {
  const PromptRound& round = prompt.round();
  const int begin = round.slice_begin();
  if (!round.slice) return AnnounceTokens(prompt, 0, pages_.layout().n_layers(), begin, round.end);
  const int layers = round.slice->projected_layers();
  AnnounceTokens(prompt, 0, layers, begin, round.end);
  AnnounceTokens(prompt, layers, 1, begin, begin + round.slice->projected_rows());
}

// To the next rank what was there before the round, as far as that one lacks it: only where the
// slice before was this worker's too.
void PrefillScheduler::AnnounceEarlier(const Prompt& prompt, int plane, int n_planes) {
  const PromptRound& round = prompt.round();
  if (prompt.is_for_rank())
    AnnounceToNext(prompt, round, plane, n_planes, 0,
                   round.lacks_from / pages_.layout().page_tokens);
}

bool PrefillScheduler::InflowMoves(const PromptRound& round) {
  return !round.has_inflow() || round.inflow > round.inflow_before;
}

// --- slices that outlive their attempt

// Ends earlier attempts at the request of `next`, and keeps the slices that it can continue.
void PrefillScheduler::EndEarlier(Prompt* next) {
  for (Prompt* earlier : queue_.Select([&](const Prompt& p) {
         return p.request.request_id == next->request.request_id &&
                p.request.epoch < next->request.epoch;
       })) {
    if (!HasSlicesOf(*next, *earlier)) {
      GiveUp(earlier);
      continue;
    }
    if (!earlier->has_work())  // they go on with nothing
      for (PromptRound& round : next->rounds) round.goes_on = HasSlice(earlier->rounds, round);
    if (!earlier->gave_up()) {
      earlier->keep = earlier->has_work();
      earlier->progress = next->admitted;
      Stop(earlier, EndReason::kCancelled, {});
    }
  }
}

// The pages it will have are not free of the earlier attempt's handoffs yet.
bool PrefillScheduler::AwaitsKept(const Prompt& prompt) const {
  const Prompt* const kept = queue_.FindKeptFor(prompt);
  return kept != nullptr && kept->phase != Phase::kKept;
}

// Takes pages from kept slices if need be, but never from those kept for this prompt.
bool PrefillScheduler::HoldPages(Prompt* prompt) {
  if (!prompt->pages.empty()) return true;
  if (AwaitsKept(*prompt)) return false;
  Prompt* const kept = queue_.FindKeptFor(*prompt);
  const int wanted = pages_.wanted();
  while (!(kept != nullptr ? pages_.TakeOver(prompt, kept) : pages_.Take(prompt))) {
    if (!ForgetKept(kept)) return false;
    pages_.ForgetWanted(wanted);
  }
  if (kept != nullptr) GoOnWith(prompt, kept);
  return true;
}

bool PrefillScheduler::ForgetKept(const Prompt* except) {
  Prompt* const kept = queue_.FirstKept(except);
  if (kept != nullptr) End(kept, EndReason::kCancelled, {});
  return kept != nullptr;
}

void PrefillScheduler::GoOnWith(Prompt* prompt, Prompt* kept) {
  prompt->first_step = kept->first_step;
  for (PromptRound& round : prompt->rounds) TakeOver(kept->rounds, pages_.layout(), &round);
  if (parked_ == kept) parked_ = prompt;
  End(kept, EndReason::kCancelled, {});
}

// Stops running the slice; the engine holds it until another slice begins.
void PrefillScheduler::ParkSlice(const Prompt* prompt) {
  if (slice_ == prompt) parked_ = std::exchange(slice_, nullptr);
}

// --- the slice

// True if a rank computes a lost rank's slice in steps, because the engine holds a later slice of
// its own, which steps leave there. No inflow of the lost rank's slice is missing then.
bool PrefillScheduler::RunsInSteps(Prompt* prompt) {
  if (!prompt->is_rank()) return true;
  PromptRound& round = prompt->round();
  if (parked_ == prompt && !round.slice && !round.is_computed()) round.in_steps = true;
  return round.in_steps;
}

void PrefillScheduler::ChooseSlice(Prompt* prompt, absl::Time now) {
  PromptRound& round = prompt->round();
  if (prompt->phase == Phase::kRunning || !InflowMoves(round)) return;
  const bool done = round.is_computed();
  bool again = prompt->request.epoch > 1 && !round.goes_on;
  if (!done) {
    if (slice_ != nullptr) return;
    if (parked_ != prompt) {
      again |= round.slice.has_value();
      round.slice.reset();  // the engine has another by now
    }
    slice_ = prompt;
    parked_ = nullptr;
  }
  Run(prompt, now);
  if (round.has_inflow()) PassOn(*prompt, {});
  if (round.slice || done) AnnounceProjected(*prompt);
  if (done) {
    RoundComputed(prompt);
    // The KV before the next slice may be here already.
    if (prompt->phase == Phase::kInflow && !RunsInSteps(prompt)) ChooseSlice(prompt, now);
    return;
  }
  if (round.slice) return;
  const int page_tokens = pages_.layout().page_tokens;
  round.slice.emplace(
      SliceRun::Shape{.n_layers = pages_.layout().n_layers(),
                      .n_rows = round.end - round.done,
                      .wants_logits = !prompt->is_for_rank(),
                      .inflow_pages = round.has_inflow() ? round.begin / page_tokens : 0,
                      .page_tokens = page_tokens,
                      .segment_keys = facts_.slice_keys});
  if (again) prompt->recomputed += round.slice->n_rows();
}

// For its rows everything before the slice is inflow, of which the earlier rounds' part is there.
// A slice that was kept may have begun with one that this attempt does not have.
std::optional<SliceBlock> PrefillScheduler::NextBlock(int max_rows) const {
  if (!has_slice()) return std::nullopt;
  const PromptRound& round = slice_->round();
  InflowProgress inflow = round.inflow;
  inflow.pages += round.lacks_from / pages_.layout().page_tokens;
  if (!round.has_inflow()) inflow = {.planes = pages_.layout().n_layers(), .pages = 0};
  return round.slice->Next(max_rows, inflow);
}

void PrefillScheduler::DescribeSlice(StepBuilder* builder) const {
  const std::span<const int32_t> tokens(slice_->request.tokens);
  builder->Clear();
  const PromptRound& round = slice_->round();
  builder->AddPiece(tokens.subspan(round.done, round.end - round.done), round.done,
                    std::span(slice_->pages).first(pages_.layout().PagesFor(round.end)),
                    slice_->range);
  if (!slice_->is_for_rank()) builder->WantLogits(builder->n_tokens() - 1);
}

ComputedSlice PrefillScheduler::BlockDone(const SliceBlock& block, const Backend& backend,
                                          Sampler* sampler, absl::Time now) {
  Prompt* prompt = slice_;
  PromptRound& round = prompt->round();
  prompt->progress = now;
  const bool layer_ends = round.slice->Computed(block);
  const int n_rows = round.slice->n_rows();
  if (layer_ends) {
    // A layer of the slice is worth so many tokens.
    const int n_layers = pages_.layout().n_layers();
    queue_.CountOvertaking(*prompt, (n_rows + n_layers - 1) / n_layers);
  }
  if (block.kind == SliceBlock::Kind::kProject)
    AnnounceTokens(*prompt, block.layer, 1, round.done + block.from, round.done + block.to);
  if (!round.slice->done()) return {};
  const ComputedSlice done{.tokens = n_rows, .before = round.done};
  SliceDone(backend, sampler, now);
  return done;
}

void PrefillScheduler::SliceDone(const Backend& backend, Sampler* sampler, absl::Time now) {
  Prompt* prompt = std::exchange(slice_, nullptr);
  PromptRound& round = prompt->round();
  round.done = round.end;
  if (prompt->is_for_rank()) return RoundComputed(prompt);
  pages_.Enter(prompt);
  pages_.Trim(prompt);
  FirstToken(prompt, backend.slice_logits(), sampler, now);  // may end the prompt
}

// Another rank's first token waits for it.
void PrefillScheduler::RoundComputed(Prompt* prompt) {
  PromptRound& round = prompt->round();
  if (round.pushing) Emit(MakeCommitPush(round));
  if (prompt->at == 0 && !round.has_inflow()) pages_.Enter(prompt);  // nothing writes them any more
  CommitIfComplete(prompt);
}

bool PrefillScheduler::IsComplete(const Prompt& prompt) const {
  return prompt.round().is_computed() && !MissesInflow(prompt.round());
}

// A head in the middle may be done before the last layer of its inflow is there: it only passes
// that on.
void PrefillScheduler::CommitIfComplete(Prompt* prompt) {
  // One that takes a computed slice over has to begin first.
  if (!prompt->is_for_rank() || prompt->phase != Phase::kRunning || !IsComplete(*prompt)) return;
  PromptRound& round = prompt->round();
  if (round.is_remote) Commit(&round, 0);
  if (prompt->is_last_round())
    prompt->phase = Phase::kCommitting;
  else
    AwaitNextRound(prompt);
}

// Waits for the inflow of the prompt's next slice. Until it comes the engine is free for others.
void PrefillScheduler::AwaitNextRound(Prompt* prompt) {
  ++prompt->at;
  prompt->phase = Phase::kInflow;
}

void PrefillScheduler::PushEnded(const HandoffEnded& event, absl::Time now) {
  const auto [prompt, round] = queue_.FindPush(event.ticket_id);
  if (prompt == nullptr) return;
  prompt->progress = now;
  round->pushing = false;
  if (prompt->phase == Phase::kEnding) return EndIfReleased(prompt);
  if (!event.status.ok()) return Break(prompt, PartFault::kPush, event.status);
  EndIfHandedOver(prompt);
}

}  // namespace baton
