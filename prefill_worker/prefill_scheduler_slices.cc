// PrefillScheduler, second part: ranks of relays, their inflows and the slice that runs.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "prefill_worker/prefill_scheduler.h"
#include "prefill_worker/prompt_messages.h"

namespace baton {

using Phase = PromptState;

bool PrefillScheduler::MissesInflow(const PromptSlice& slice) const {
  return slice.misses_inflow(pages_.layout().n_layers());
}

void PrefillScheduler::Arrived(const InflowArrived& event, absl::Time now) {
  const auto [prompt, slice, output] = queue_.FindInflow(event.ticket_id);
  if (prompt == nullptr) return;
  const InflowProgress arrived{.planes = event.n_planes, .pages = event.n_pages};
  const InflowProgress before = std::exchange(slice->inflow, arrived);
  BATON_CHECK(before < arrived);
  prompt->progress = now;
  slice->inflow_open = MissesInflow(*slice);
  if (prompt->phase == Phase::kEnding) return EndIfReleased(prompt);
  // Before it runs it passes on nothing: the next rank must not begin before it (docs/RELAY.md).
  if (prompt->phase != Phase::kRunning || slice != &prompt->slice()) return;
  PassOn(*prompt, before);
  CommitFinal(prompt);
}

// Passes on the inflow that has arrived since `before`.
void PrefillScheduler::PassOn(const Prompt& prompt, const InflowProgress& before) {
  const PromptSlice& slice = prompt.slice();
  const InflowProgress& now = slice.inflow;
  const int from = slice.lacks_from / pages_.layout().page_tokens;
  const int end = slice.begin / pages_.layout().page_tokens;
  if (now.planes == before.planes)
    return Announce(prompt, now.planes, 1, from + before.pages, from + now.pages);
  Announce(prompt, before.planes, 1, from + before.pages, end);
  Announce(prompt, before.planes + 1, now.planes - before.planes - 1, from, end);
  Announce(prompt, now.planes, 1, from, from + now.pages);
}

// Announces the part of the slice that an earlier attempt computed here, or received from the rank
// that computed it.
void PrefillScheduler::AnnounceProjected(const Prompt& prompt) {
  const PromptSlice& slice = prompt.slice();
  const int begin = slice.first_own();
  if (!slice.run) return AnnounceTokens(prompt, 0, pages_.layout().n_layers(), begin, slice.end);
  const int layers = slice.run->projected_layers();
  AnnounceTokens(prompt, 0, layers, begin, slice.end);
  AnnounceTokens(prompt, layers, 1, begin, begin + slice.run->projected_rows());
}

bool PrefillScheduler::InflowMoves(const PromptSlice& slice) {
  return !slice.has_inflow() || slice.inflow > slice.inflow_before;
}

// --- slices that outlive their attempt

// Ends earlier attempts at the request of `next`, which may continue their slices.
void PrefillScheduler::EndEarlier(const Prompt& next) {
  DiscardLeft([&](const Prompt& left) {
    return left.request.request_id == next.request.request_id && !HasSlicesOf(next, left);
  });
  for (Prompt* earlier : queue_.Select(
           [&](const Prompt& p) { return p.request.request_id == next.request.request_id; })) {
    if (!HasSlicesOf(next, *earlier)) {
      GiveUp(earlier);
    } else if (earlier->phase != Phase::kEnding) {
      earlier->keep = true;
      earlier->progress = next.admitted;
      Stop(earlier, EndReason::kCancelled, {});
    }
  }
}

// Takes what an earlier attempt has left, once its handoffs have ended, and pages of other slices
// that were left if need be.
bool PrefillScheduler::HoldPages(Prompt* prompt) {
  if (!prompt->pages.empty()) return true;
  if (queue_.AwaitsSlices(*prompt)) return false;
  Prompt* const left = slice_cache_.Find(*prompt);
  const bool has_pages = left != nullptr && !left->pages.empty();
  const int wanted = pages_.wanted();
  while (!(has_pages ? pages_.TakeOver(prompt, left) : pages_.Take(prompt))) {
    if (!DiscardOldest(left)) return false;
    pages_.ForgetWanted(wanted);
  }
  if (left == nullptr) return true;
  if (has_pages) prompt->first_step = left->first_step;
  for (PromptSlice& slice : prompt->slices) TakeOver(left->slices, pages_.layout(), &slice);
  slice_cache_.TakeFirst([left](const Prompt& first) { return &first == left; });
  return true;
}

bool PrefillScheduler::DiscardOldest(const Prompt* except) {
  auto left = slice_cache_.TakeFirst([except](const Prompt& first) { return &first != except; });
  if (left == nullptr) return false;
  Discard(std::move(left));
  return true;
}

void PrefillScheduler::DiscardLeft(const std::function<bool(const Prompt&)>& which) {
  while (auto left = slice_cache_.TakeFirst(which)) Discard(std::move(left));
}

// Gives back the pages of what is left; they may be found by others.
void PrefillScheduler::Discard(std::unique_ptr<Prompt> left) {
  // Not before: an inflow of a later attempt could still land in them.
  if (left->is_rank && !left->pages.empty()) pages_.Enter(left.get());
  pages_.Give(left.get());
}

// --- the slice

// True if a rank computes a lost rank's slice in steps, because the engine holds a later slice of
// its own, which steps leave there. No inflow of the lost rank's slice is missing then.
bool PrefillScheduler::RunsInSteps(Prompt* prompt) {
  if (!prompt->is_rank) return true;
  PromptSlice& slice = prompt->slice();
  const auto is_on_engine = [this](const PromptSlice& later) {
    return later.run && later.run_id == engine_run_ && !later.is_computed();
  };
  if (!slice.run && !slice.is_computed())
    slice.in_steps |= std::any_of(prompt->slices.begin(), prompt->slices.end(), is_on_engine);
  return slice.in_steps;
}

void PrefillScheduler::ChooseSlice(Prompt* prompt, absl::Time now) {
  PromptSlice& slice = prompt->slice();
  if (prompt->phase == Phase::kRunning || !InflowMoves(slice)) return;
  const bool done = slice.is_computed();
  bool again = prompt->request.epoch > 1 && !slice.goes_on;
  if (!done) {
    if (slice_ != nullptr) return;
    if (slice.run && slice.run_id != engine_run_) {  // the engine has another by now
      again = true;
      slice.run.reset();
    }
    slice_ = prompt;
  }
  Run(prompt, now);
  if (slice.has_inflow()) PassOn(*prompt, {});
  if (slice.run || done) AnnounceProjected(*prompt);
  if (done) {
    SliceComputed(prompt);
    // The KV before the next slice may be here already.
    if (prompt->phase == Phase::kInflow && !RunsInSteps(prompt)) ChooseSlice(prompt, now);
    return;
  }
  if (slice.run) return;
  const int page_tokens = pages_.layout().page_tokens;
  slice.run.emplace(
      SliceRun::Shape{.n_layers = pages_.layout().n_layers(),
                      .n_rows = slice.end - slice.done,
                      .wants_logits = !prompt->is_for_rank(),
                      .inflow_pages = slice.has_inflow() ? slice.begin / page_tokens : 0,
                      .page_tokens = page_tokens,
                      .segment_keys = facts_.slice_keys});
  slice.run_id = ++engine_run_;
  if (again) prompt->recomputed += slice.run->n_rows();
}

// For its rows everything before the slice is inflow, of which the earlier rounds' part is there.
// A slice that was left may have begun with one that this attempt does not have.
std::optional<SliceBlock> PrefillScheduler::NextBlock(int max_rows) const {
  if (!has_slice()) return std::nullopt;
  const PromptSlice& slice = slice_->slice();
  InflowProgress inflow = slice.inflow;
  inflow.pages += slice.lacks_from / pages_.layout().page_tokens;
  if (!slice.has_inflow()) inflow = {.planes = pages_.layout().n_layers(), .pages = 0};
  return slice.run->Next(max_rows, inflow);
}

void PrefillScheduler::DescribeSlice(StepBuilder* builder) const {
  const std::span<const int32_t> tokens(slice_->request.tokens);
  builder->Clear();
  const PromptSlice& slice = slice_->slice();
  builder->AddPiece(tokens.subspan(slice.done, slice.end - slice.done), slice.done,
                    std::span(slice_->pages).first(pages_.layout().PagesFor(slice.end)),
                    slice_->range);
  if (!slice_->is_for_rank()) builder->WantLogits(builder->n_tokens() - 1);
}

ComputedSlice PrefillScheduler::BlockDone(const SliceBlock& block, const Backend& backend,
                                          Sampler* sampler, absl::Time now) {
  Prompt* prompt = slice_;
  PromptSlice& slice = prompt->slice();
  prompt->progress = now;
  const bool layer_ends = slice.run->Computed(block);
  const int n_rows = slice.run->n_rows();
  if (layer_ends) {
    // A layer of the slice is worth so many tokens.
    const int n_layers = pages_.layout().n_layers();
    queue_.CountOvertaking(*prompt, (n_rows + n_layers - 1) / n_layers);
  }
  if (block.kind == SliceBlock::Kind::kProject)
    AnnounceTokens(*prompt, block.layer, 1, slice.done + block.from, slice.done + block.to);
  if (!slice.run->done()) return {};
  const ComputedSlice done{.tokens = n_rows, .before = slice.done};
  SliceDone(backend, sampler, now);
  return done;
}

void PrefillScheduler::SliceDone(const Backend& backend, Sampler* sampler, absl::Time now) {
  Prompt* prompt = std::exchange(slice_, nullptr);
  PromptSlice& slice = prompt->slice();
  slice.done = slice.end;
  if (prompt->is_for_rank()) return SliceComputed(prompt);
  pages_.Enter(prompt);
  pages_.Trim(prompt);
  FirstToken(prompt, backend.slice_logits(), sampler, now);  // may end the prompt
}

// Another rank, or the next slice, waits for it.
void PrefillScheduler::SliceComputed(Prompt* prompt) {
  if (prompt->at == 0 && !prompt->slice().has_inflow())
    pages_.Enter(prompt);  // nothing writes them any more
  CommitFinal(prompt);
}

// A rank in the middle may have computed its slice before the last layer of its inflow is there: it
// only passes that on. What another one brings to the decode worker waits for nothing.
void PrefillScheduler::CommitFinal(Prompt* prompt) {
  PromptSlice& slice = prompt->slice();
  // One that takes a computed slice over has to begin first.
  if (!prompt->is_for_rank() || prompt->phase != Phase::kRunning || !slice.is_computed()) return;
  const int own_page = slice.begin / pages_.layout().page_tokens;
  for (SliceOutput& output : slice.outputs)
    if (!output.committed && (!MissesInflow(slice) || output.to.first_page == own_page))
      Commit(slice, &output, 0);
  if (MissesInflow(slice)) return;
  if (prompt->is_last_slice()) {
    prompt->phase = Phase::kCommitting;
  } else {  // the engine is free for others until the next slice's inflow comes
    ++prompt->at;
    prompt->phase = Phase::kInflow;
  }
}

}  // namespace baton
