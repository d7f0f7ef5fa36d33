#include "prefill_worker/prompt_pages.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

// A page is copied for at least this share of its tokens.
constexpr int kWorthCopying = 8;

}  // namespace

PromptPages::PromptPages(KvPool* pool, PrefixIndex* index, const PrefillOptions& options)
    : pool_(pool),
      index_(index),
      max_left_(static_cast<size_t>(options.max_prompts)),
      keep_time_(options.kept_slice_time) {}

void PromptPages::BeginTurn(int kept) {
  wanted_ = taken_ = 0;
  kept_ = kept;
}

std::span<const int32_t> PromptPages::Reusable(const Prompt& prompt) const {
  // Pages of an inflow are written, so they are nobody else's. A token is scored by computing the
  // one before it.
  const PromptSlice& first = prompt.slices.front();
  if (index_ == nullptr || first.has_inflow() || prompt.is_scored()) return {};
  // The last token is computed in any case, for its logits; in rounds an inflow may follow.
  return std::span(prompt.request.tokens).first(first.end - size_t{1});
}

void PromptPages::Expect(Prompt* prompt) const {
  const std::span<const int32_t> tokens = Reusable(*prompt);
  if (tokens.empty()) return;
  const PrefixChain chain = PrefixChain::Beginning(prompt->request.cache_salt, prompt->range);
  prompt->slices.front().expected = index_->Count(tokens, chain) * layout().page_tokens;
}

bool PromptPages::Hold(Prompt* prompt) {
  if (!prompt->pages.empty()) return true;
  const auto found = std::find_if(left_.begin(), left_.end(), [&](const auto& earlier) {
    return HasSlicesOf(*prompt, *earlier);
  });
  Prompt* const left = found == left_.end() ? nullptr : found->get();
  const bool has_pages = left != nullptr && !left->pages.empty();
  const int wanted = wanted_;
  while (!(has_pages ? TakeOver(prompt, left) : Take(prompt))) {
    if (!DiscardOldest(left)) return false;
    wanted_ = wanted;
  }
  prompt->slices.front().expected = 0;
  if (left == nullptr) return true;
  if (has_pages) prompt->first_step = left->first_step;
  for (PromptSlice& slice : prompt->slices) baton::TakeOver(left->slices, layout(), &slice);
  TakeLeft([left](const Prompt& first) { return &first == left; });
  return true;
}

void PromptPages::Leave(std::unique_ptr<Prompt> ended) {
  if (!ended->keep || !ended->is_continuable()) return Discard(ended.get());
  if (left_.size() >= max_left_) Discard(TakeLeft([](const Prompt&) { return true; }).get());
  left_.push_back(std::move(ended));
}

std::unique_ptr<Prompt> PromptPages::TakeLeft(const std::function<bool(const Prompt&)>& which) {
  const auto it =
      std::find_if(left_.begin(), left_.end(), [&](const auto& left) { return which(*left); });
  if (it == left_.end()) return nullptr;
  std::unique_ptr<Prompt> taken = std::move(*it);
  left_.erase(it);
  return taken;
}

bool PromptPages::DiscardOldest(const Prompt* except) {
  const auto left =
      TakeLeft([except](const Prompt& first) { return &first != except && !first.pages.empty(); });
  if (left != nullptr) Discard(left.get());
  return left != nullptr;
}

void PromptPages::DiscardLeft(const std::function<bool(const Prompt&)>& which) {
  while (const auto left = TakeLeft(which)) Discard(left.get());
}

// Slices stay as long as they had taken, and keep_time.
absl::Time PromptPages::DeadlineOf(const Prompt& left) const {
  const absl::Duration took =
      left.slices.front().run ? left.progress - left.first_step : absl::ZeroDuration();
  return left.progress + took + keep_time_;
}

void PromptPages::OnTime(absl::Time now) {
  DiscardLeft([&](const Prompt& left) { return now >= DeadlineOf(left); });
}

absl::Time PromptPages::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& left : left_) next = std::min(next, DeadlineOf(*left));
  return next;
}

void PromptPages::Discard(Prompt* ended) {
  // Not before: an inflow of a later attempt could still land in them.
  if (ended->is_rank && !ended->pages.empty()) Enter(ended);
  Give(ended);
}

bool PromptPages::Take(Prompt* prompt) {
  const int free_before = pool_->free();
  prompt->chain = PrefixChain::Beginning(prompt->request.cache_salt, prompt->range);
  const std::span<const int32_t> tokens = Reusable(*prompt);
  const bool reuses = !tokens.empty();
  if (reuses) index_->Hold(tokens, &prompt->chain, &prompt->pages);
  const int missing = prompt->pages_needed - static_cast<int>(prompt->pages.size());
  if (missing > pool_->free() - kept_) {
    NoteLack(*prompt, missing + free_before - pool_->free());
    Give(prompt);
    return false;
  }
  auto found = static_cast<int32_t>(prompt->pages.size()) * layout().page_tokens;
  if (reuses && !prompt->is_rank) {  // a rank's slice begins with a page, as an inflow does
    const int worth = std::max(1, layout().page_tokens / kWorthCopying);
    const PrefixPart part =
        index_->TakeCopy(tokens.subspan(static_cast<size_t>(found)), prompt->chain, worth);
    if (part.n_tokens > 0) prompt->pages.push_back(part.page);
    found += part.n_tokens;
  }
  prompt->slices.front().done += found;
  prompt->last_word.reused_tokens = found;
  reused_tokens_ += found;
  BATON_CHECK(
      pool_->Take(prompt->pages_needed - static_cast<int>(prompt->pages.size()), &prompt->pages));
  taken_ += free_before - pool_->free();
  return true;
}

void PromptPages::NoteLack(const Prompt& prompt, int missing) {
  if (wanted_ == 0 && !prompt.request.pages_at_once) wanted_ = missing;
}

bool PromptPages::TakeOver(Prompt* prompt, Prompt* left) {
  const int missing = prompt->pages_needed - static_cast<int>(left->pages.size());
  BATON_CHECK(missing >= 0 && prompt->pages.empty());
  if (missing > 0 && missing > pool_->free() - kept_) {
    NoteLack(*prompt, missing);
    return false;
  }
  prompt->pages = std::exchange(left->pages, {});
  prompt->chain = left->chain;
  BATON_CHECK(pool_->Take(missing, &prompt->pages));
  taken_ += missing;
  return true;
}

void PromptPages::Enter(Prompt* prompt) {
  if (index_ == nullptr) return;
  const int page_tokens = layout().page_tokens;
  const std::span<const int32_t> tokens(prompt->request.tokens);
  const PromptSlice& slice = prompt->slice();
  const int done = slice.misses_inflow(layout().n_layers()) ? slice.lacks_from : slice.done;
  const int n = static_cast<int>(tokens.size());
  for (int page = prompt->chain.pages, begin; (begin = page * page_tokens) < done; ++page) {
    const int end = std::min(begin + page_tokens, n);  // the last page need not be full
    if (end > done) return;
    index_->Enter(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                  prompt->pages[page], &prompt->chain);
  }
}

void PromptPages::Trim(Prompt* prompt) {
  if (prompt->is_remote || prompt->in_transfer()) return;
  const int passed = pool_->layout().PagesPassed(prompt->slice().done);
  if (passed > 0) pool_->Trim(std::span(prompt->pages).first(passed));
}

void PromptPages::Give(Prompt* prompt) {
  pool_->Give(prompt->pages);
  prompt->pages.clear();
}

}  // namespace baton
