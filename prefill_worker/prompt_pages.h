// The pages of prompts: taken all at once when one starts, those found in the prefix index shared,
// entered there when they are computed, trimmed and given back. Engine thread.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/kv/kv_pool.h"
#include "prefill_worker/prefix_index.h"
#include "prefill_worker/prompt.h"

namespace baton {

class PromptPages {
 public:
  PromptPages(KvPool* pool, bool reuse_kv);

  // A turn begins. kept: free pages that are others', not to be taken.
  void BeginTurn(int kept);
  // The same turn goes on.
  void ForgetTaken() { taken_ = 0; }
  // False: too few are free; then `wanted` says what it lacks, if nobody lacked any before.
  bool Take(Prompt* prompt);
  // The same, with those of an earlier attempt, and only what it lacks besides.
  bool TakeOver(Prompt* prompt, Prompt* kept);
  // Others give pages back in this turn, before Take is tried again.
  void ForgetWanted(int wanted_before) { wanted_ = wanted_before; }
  // Those that are full, and in which no inflow of its round may land, are found by others from now
  // on.
  void Enter(Prompt* prompt);
  // Gives back what no further token sees, if no other worker is to get it.
  void Trim(Prompt* prompt);
  void Give(Prompt* prompt);

  const KvLayout& layout() const { return pool_->layout(); }
  int total() const { return pool_->total(); }
  // Pages the first prompt that could start lacked room for in this turn; 0: none waits for pages.
  int wanted() const { return wanted_; }
  int taken() const { return taken_; }                      // free ones, in this turn
  int64_t reused_tokens() const { return reused_tokens_; }  // since the start

 private:
  int PagesToStart(const Prompt& prompt) const;

  KvPool* const pool_;
  std::unique_ptr<PrefixIndex> index_;  // nullptr: KV is not reused
  int wanted_ = 0, kept_ = 0, taken_ = 0;
  int64_t reused_tokens_ = 0;
};

}  // namespace baton
