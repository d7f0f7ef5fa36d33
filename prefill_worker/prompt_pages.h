// Manages the pages of prompts: takes all of them when a prompt starts, shares those found in the
// prefix index, enters computed pages there, trims and gives back. Engine thread.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/kv/kv_pool.h"
#include "prefill_worker/prefix_index.h"
#include "prefill_worker/prompt.h"

namespace baton {

class PromptPages {
 public:
  // The pool must outlive this object, and has no other prefix index.
  PromptPages(KvPool* pool, bool reuse_kv);

  // Begins a turn. kept: free pages that are reserved for others.
  void BeginTurn(int kept);
  // Restarts the count of taken pages inside a turn.
  void ForgetTaken() { taken_ = 0; }
  // Takes all pages of a prompt that has none, those found in the index first. False: too few pages
  // are free, and the prompt has none; wanted() tells the lack of the first prompt that lacked any.
  bool Take(Prompt* prompt);
  // Like Take, but moves the pages that an earlier attempt has left to the prompt and takes only
  // the missing ones.
  bool TakeOver(Prompt* prompt, Prompt* left);
  // Sets wanted() back before Take is tried again, after others gave pages back.
  void ForgetWanted(int wanted_before) { wanted_ = wanted_before; }
  // Publishes full pages to the prefix index, except pages that incoming KV may still write.
  void Enter(Prompt* prompt);
  // Gives back pages that no further token sees, unless another worker still gets them.
  void Trim(Prompt* prompt);
  void Give(Prompt* prompt);  // gives back all pages

  const KvLayout& layout() const { return pool_->layout(); }
  int total() const { return pool_->total(); }
  // Pages that the first prompt able to start lacked in this turn; 0: no prompt waits for pages.
  int wanted() const { return wanted_; }
  int taken() const { return taken_; }                      // free pages taken in this turn
  int64_t reused_tokens() const { return reused_tokens_; }  // since the start

 private:
  KvPool* const pool_;
  std::unique_ptr<PrefixIndex> index_;  // nullptr: KV is not reused
  int wanted_ = 0, kept_ = 0, taken_ = 0;
  int64_t reused_tokens_ = 0;
};

}  // namespace baton
