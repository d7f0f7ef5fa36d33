#include "prefill_worker/prompt_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/check.h"

namespace baton {

Prompt* PromptQueue::Add(std::unique_ptr<Prompt> prompt) {
  prompts_.push_back(std::move(prompt));
  return prompts_.back().get();
}

std::unique_ptr<Prompt> PromptQueue::Remove(const Prompt* prompt) {
  const auto it = std::find_if(prompts_.begin(), prompts_.end(),
                               [prompt](const auto& p) { return p.get() == prompt; });
  BATON_CHECK(it != prompts_.end());
  std::unique_ptr<Prompt> removed = std::move(*it);
  prompts_.erase(it);
  return removed;
}

PromptQueue::Found PromptQueue::FindOutput(const TicketId& ticket) const {
  for (const auto& prompt : prompts_)
    for (PromptSlice& slice : prompt->slices)
      for (SliceOutput& output : slice.outputs)
        if (output.is_open && output.id() == ticket) return {prompt.get(), &slice, &output};
  return {};
}

PromptQueue::Found PromptQueue::FindInflow(const TicketId& id) const {
  for (const auto& prompt : prompts_)
    for (PromptSlice& slice : prompt->slices)
      if (slice.inflow_open && slice.inflow_id == id) return {prompt.get(), &slice};
  return {};
}

bool PromptQueue::SharesTickets(const Prompt& next) const {
  absl::flat_hash_set<TicketId> handoffs, inflows;
  for (const PromptSlice& slice : next.slices) {
    for (const SliceOutput& output : slice.outputs)
      if (!handoffs.insert(output.id()).second) return true;
    if (slice.has_inflow() && !inflows.insert(slice.inflow_id).second) return true;
  }
  return std::any_of(prompts_.begin(), prompts_.end(), [&](const auto& prompt) {
    const bool same_epoch = prompt->request.epoch == next.request.epoch;
    return std::any_of(prompt->slices.begin(), prompt->slices.end(), [&](const PromptSlice& slice) {
      if (same_epoch && slice.has_inflow() && inflows.contains(slice.inflow_id)) return true;
      return std::any_of(slice.outputs.begin(), slice.outputs.end(),
                         [&](const SliceOutput& output) { return handoffs.contains(output.id()); });
    });
  });
}

bool PromptQueue::AwaitsSlices(const Prompt& prompt) const {
  return std::any_of(prompts_.begin(), prompts_.end(), [&](const auto& earlier) {
    return earlier->keep && earlier->is_continuable() && HasSlicesOf(prompt, *earlier);
  });
}

const std::vector<Prompt*>& PromptQueue::Select(const std::function<bool(const Prompt&)>& which) {
  selected_.clear();
  for (const auto& prompt : prompts_)
    if (which(*prompt)) selected_.push_back(prompt.get());
  return selected_;
}

const std::vector<Prompt*>& PromptQueue::InOrder() {
  Select([](const Prompt& prompt) { return prompt.CanRun(); });
  const auto rank = [this](const Prompt* prompt) {
    const bool aged = IsAged(*prompt);
    return std::tuple(!aged, aged ? 0 : prompt->remaining(), prompt->serial);
  };
  std::sort(selected_.begin(), selected_.end(),
            [&rank](const Prompt* a, const Prompt* b) { return rank(a) < rank(b); });
  return selected_;
}

bool PromptQueue::IsAged(const Prompt& prompt) const {
  constexpr int64_t kBaseTokens = 256;  // so that short prompts age by a few chunks, not at once
  return prompt.overtaken > stretch_ * (prompt.size() + kBaseTokens);
}

void PromptQueue::CountOvertaking(const Prompt& computed, int n_tokens) {
  for (const auto& prompt : prompts_) {
    if (prompt->serial >= computed.serial) return;  // prompts are in the order of serial
    // Also those whose turn to send OPEN has not come.
    if (prompt->CanRun() || prompt->phase == PromptState::kQueued) prompt->overtaken += n_tokens;
  }
}

Prompt* PromptQueue::NextToOpen(const std::function<bool(const Prompt&)>& may) const {
  Prompt* next = nullptr;
  for (const auto& prompt : prompts_) {
    if (prompt->phase != PromptState::kQueued || !prompt->is_remote || !may(*prompt)) continue;
    if (next == nullptr ||
        (!IsAged(*next) && (IsAged(*prompt) || prompt->remaining() < next->remaining())))
      next = prompt.get();
  }
  return next;
}

int PromptQueue::OpenedAhead() const {
  return static_cast<int>(std::count_if(prompts_.begin(), prompts_.end(), [](const auto& prompt) {
    return prompt->is_remote && (prompt->phase == PromptState::kPromised ||
                                 (prompt->phase == PromptState::kOpening && !prompt->no_room));
  }));
}

PromptQueue::Work PromptQueue::queued() const {
  Work work;
  for (const auto& prompt : prompts_) {
    if (prompt->phase == PromptState::kEnding) continue;
    work.tokens += prompt->remaining();
    work.pairs += prompt->remaining_pairs();
  }
  return work;
}

int PromptQueue::n_running() const {
  return static_cast<int>(std::count_if(prompts_.begin(), prompts_.end(), [](const auto& prompt) {
    return prompt->phase == PromptState::kRunning;
  }));
}

}  // namespace baton
