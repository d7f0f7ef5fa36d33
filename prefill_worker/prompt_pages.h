// Manages the pages of prompts: takes all of them when a prompt starts, shares those found in the
// prefix index or left by an earlier attempt, enters computed pages in the index, trims and gives
// back. Engine thread.
//
// Slices that ended attempts have left, with their pages and progress, stay for a later attempt at
// the same request. They go like cached pages: when somebody lacks pages, or after a while. So what
// is left makes nobody wait.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "engine/kv/kv_pool.h"
#include "engine/kv/prefix_index.h"
#include "prefill_worker/prompt.h"

namespace baton {

class PromptPages {
 public:
  // Pool and index outlive this object. index: null: KV is not reused.
  PromptPages(KvPool* pool, PrefixIndex* index, const PrefillOptions& options);

  // Begins a turn. kept: free pages that are reserved for others.
  void BeginTurn(int kept);
  // Tells a prompt that was admitted how many of its tokens the index finds now, for its place in
  // the order and the work that routers are told of.
  void Expect(Prompt* prompt) const;
  // Takes all pages of a prompt, unless it has them: those that an earlier attempt has left, or
  // that the index finds, first. Slices that others left go where pages lack. False: too few pages
  // are free, and the prompt has none; wanted() tells the lack of the first prompt that lacked any
  // and waits for them.
  bool Hold(Prompt* prompt);
  // The prompt has ended, and no handoff reads or writes its pages any more: gives them back, or
  // keeps its slices for a later attempt (Prompt::keep).
  void Leave(std::unique_ptr<Prompt> ended);
  // Gives back the pages of the slices with pages that were left first, but not of `except`; false:
  // there are none.
  bool DiscardOldest(const Prompt* except = nullptr);
  // Gives back those of all slices left that `which` allows.
  void DiscardLeft(const std::function<bool(const Prompt&)>& which);
  void OnTime(absl::Time now);      // gives back those of slices left long ago
  absl::Time NextDeadline() const;  // the time of the next OnTime
  // Publishes full pages, and the prompt's last one, to the prefix index, except pages that
  // incoming KV may still write.
  void Enter(Prompt* prompt);
  // Gives back pages that no further token sees, unless another worker still gets them.
  void Trim(Prompt* prompt);
  void Give(Prompt* prompt);  // gives back all pages

  const KvLayout& layout() const { return pool_->layout(); }
  int total() const { return pool_->total(); }
  // Prompts that have ended and left slices, the oldest first.
  const std::vector<std::unique_ptr<Prompt>>& left() const { return left_; }
  // Pages that the first prompt able to start lacked in this turn; 0: no prompt waits for pages.
  int wanted() const { return wanted_; }
  int taken() const { return taken_; }                      // free pages taken in this turn
  int64_t reused_tokens() const { return reused_tokens_; }  // since the start

 private:
  // Tokens of the prompt whose KV the index may have; empty: none is reused.
  std::span<const int32_t> Reusable(const Prompt& prompt) const;
  bool Take(Prompt* prompt);
  bool TakeOver(Prompt* prompt, Prompt* left);
  // Takes out the first one left of those that `which` allows; null: there is none.
  std::unique_ptr<Prompt> TakeLeft(const std::function<bool(const Prompt&)>& which);
  absl::Time DeadlineOf(const Prompt& left) const;
  void Discard(Prompt* ended);
  void NoteLack(const Prompt& prompt, int missing);

  KvPool* const pool_;
  PrefixIndex* const index_;
  const size_t max_left_;
  const absl::Duration keep_time_;
  std::vector<std::unique_ptr<Prompt>> left_;
  int wanted_ = 0, kept_ = 0, taken_ = 0;
  int64_t reused_tokens_ = 0;
};

}  // namespace baton
