// PrefillScheduler, second part: ranks of relays, their inflows and the slice that runs.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "prefill_worker/prefill_scheduler.h"
#include "prefill_worker/prompt_messages.h"

namespace baton {

using Phase = PromptState;

bool PrefillScheduler::MissesInflow(const Prompt& prompt) const {
  return prompt.has_inflow() && prompt.inflow.planes < pages_.layout().n_layers();
}

void PrefillScheduler::Arrived(const InflowArrived& event, absl::Time now) {
  Prompt* prompt = queue_.FindInflow(event.ticket_id);
  if (prompt == nullptr) return;
  const InflowProgress arrived{.planes = event.n_planes, .pages = event.n_pages};
  const InflowProgress before = std::exchange(prompt->inflow, arrived);
  CHECK(before < arrived);
  prompt->progress = now;
  prompt->inflow_open = MissesInflow(*prompt);
  if (prompt->phase == Phase::kEnding) return EndIfReleased(prompt);
  // Before it runs it passes on nothing: the next rank must not begin before it
  // (prefill_scheduler.h)
  if (prompt->is_remote && prompt->phase == Phase::kRunning) PassOn(prompt, before);
  CommitIfComplete(prompt);
}

// What has arrived since `before`.
void PrefillScheduler::PassOn(Prompt* prompt, const InflowProgress& before) {
  if (WaitsForPrefixes(*prompt)) return AnnouncePrefixes(prompt);
  const InflowProgress& now = prompt->inflow;
  const int n_pages = prompt->request.inflow.tokens / pages_.layout().page_tokens;
  if (now.planes == before.planes) return Announce(*prompt, now.planes, 1, before.pages, now.pages);
  Announce(*prompt, before.planes, 1, before.pages, n_pages);
  Announce(*prompt, before.planes + 1, now.planes - before.planes - 1, 0, n_pages);
  Announce(*prompt, now.planes, 1, 0, now.pages);
}

bool PrefillScheduler::WaitsForPrefixes(const Prompt& prompt) const {
  return prompt.request.is_head && !options_.cut_through;
}

// Of each layer all up to the slice's end at once.
void PrefillScheduler::AnnouncePrefixes(Prompt* head) {
  const int projected = head->slice ? head->slice->projected_layers() : 0;
  const int there = head->has_inflow() ? head->inflow.planes : pages_.layout().n_layers();
  for (int& layer = head->announced_layers; layer < std::min(projected, there); ++layer)
    AnnounceTokens(*head, layer, 1, 0, head->size());
}

// --- the slice

void PrefillScheduler::ChooseSlice(Prompt* prompt, absl::Time now) {
  if (slice_ != nullptr || prompt->slice) return;
  if (prompt->has_inflow() && !prompt->inflow.has_begun()) return;
  const int page_tokens = pages_.layout().page_tokens;
  slice_ = prompt;
  Run(prompt, now);
  if (prompt->is_remote && prompt->has_inflow()) PassOn(prompt, {});
  prompt->slice.emplace(SliceRun::Shape{.n_layers = pages_.layout().n_layers(),
                                        .n_rows = prompt->size() - prompt->done,
                                        .wants_logits = !prompt->request.is_head,
                                        .inflow_pages = prompt->request.inflow.tokens / page_tokens,
                                        .page_tokens = page_tokens,
                                        .segment_keys = options_.segment_keys});
}

std::optional<SliceBlock> PrefillScheduler::NextBlock(int max_rows) const {
  return has_slice() ? slice_->slice->Next(max_rows, slice_->inflow) : std::nullopt;
}

void PrefillScheduler::DescribeSlice(StepBuilder* builder) const {
  const std::span<const int32_t> tokens(slice_->request.tokens);
  builder->Clear();
  builder->AddPiece(tokens.subspan(static_cast<size_t>(slice_->done)), slice_->done,
                    std::span(slice_->pages).first(pages_.layout().PagesFor(slice_->size())),
                    slice_->range);
  if (!slice_->request.is_head) builder->WantLogits(builder->n_tokens() - 1);
}

ComputedSlice PrefillScheduler::BlockDone(const SliceBlock& block, const Backend& backend,
                                          Sampler* sampler, absl::Time now) {
  Prompt* prompt = slice_;
  prompt->progress = now;
  const bool layer_ends = prompt->slice->Computed(block);
  const int n_rows = prompt->slice->n_rows();
  if (layer_ends) {
    // A layer of the slice is worth so many tokens.
    const int n_layers = pages_.layout().n_layers();
    queue_.CountOvertaking(*prompt, (n_rows + n_layers - 1) / n_layers);
  }
  if (WaitsForPrefixes(*prompt))
    AnnouncePrefixes(prompt);
  else if (prompt->is_remote && block.kind == SliceBlock::Kind::kProject)
    AnnounceTokens(*prompt, block.layer, 1, prompt->done + block.from, prompt->done + block.to);
  if (!prompt->slice->done()) return {};
  const ComputedSlice done{.tokens = n_rows, .before = prompt->done};
  SliceDone(backend, sampler, now);
  return done;
}

void PrefillScheduler::SliceDone(const Backend& backend, Sampler* sampler, absl::Time now) {
  Prompt* prompt = std::exchange(slice_, nullptr);
  prompt->done = prompt->size();
  if (prompt->pushing && !WaitsForPrefixes(*prompt)) Say(MakeCommitPush(*prompt));
  if (prompt->request.is_head) return CommitIfComplete(prompt);
  pages_.Enter(prompt);
  pages_.Trim(prompt);
  FirstToken(prompt, backend.slice_logits(), sampler, now);  // may end the prompt
}

// A head in the middle may be done before the last layer of its inflow is there: it only passes
// that on.
void PrefillScheduler::CommitIfComplete(Prompt* prompt) {
  if (!prompt->request.is_head || prompt->done < prompt->size() || MissesInflow(*prompt)) return;
  pages_.Enter(prompt);
  if (prompt->pushing && WaitsForPrefixes(*prompt)) Say(MakeCommitPush(*prompt));
  Commit(prompt, 0);
}

void PrefillScheduler::PushEnded(Prompt* prompt, const HandoffEnded& event) {
  if (prompt == nullptr) return;
  prompt->pushing = false;
  if (prompt->phase == Phase::kEnding) return EndIfReleased(prompt);
  if (!event.status.ok()) {
    prompt->fault = PartFault::kHandoff;
    return Stop(prompt, EndReason::kFailed, absl::StrFormat("push: %s", event.status.ToString()));
  }
  if (prompt->phase == Phase::kCommitting && !prompt->handing_over)
    End(prompt, EndReason::kLength, {});
}

}  // namespace baton
