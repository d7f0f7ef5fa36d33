// How many steps of their own prompts take on one worker, and what these cost beyond what their
// tokens do: every step costs something of its own, such as reading the weights. The worker packs
// its steps by these rules, and plans count them. Plain values; pure functions, any thread.
#pragma once

#include <cstdint>

#include "common/prefill_cost.h"

namespace baton {

// A step with so many prompt tokens takes no further prompt: the first would end later.
constexpr int kEnoughTokens = 64;
// With at most so many tokens while a shorter prompt awaits its promise.
constexpr int kAskingTokens = 32;

// Seconds of prompts in two ways: as their tokens and pairs cost (PrefillCost::Work), which is what
// counts beside rows, where the weights are read anyway; and in steps of their own.
struct PromptSeconds {
  double work = 0, alone = 0;
  PromptSeconds operator+(const PromptSeconds& more) const {
    return {.work = work + more.work, .alone = alone + more.alone};
  }
};

// Sums up prompts that one worker computes one after another.
class PromptSteps {
 public:
  // full_step: tokens of a step that is full; 0: unknown, each prompt is taken to have a step more
  // than its tokens make up. The cost outlives it.
  PromptSteps(const PrefillCost& cost, double full_step) : cost_(cost), full_step_(full_step) {}

  // `tokens` of a prompt, at least one, and all their pairs.
  void Add(int64_t tokens, double pairs);
  // A longer prompt waits with so many tokens, of so many pairs each: it fills up steps with few.
  void FillFrom(int64_t tokens, double pairs_of_token);
  PromptSeconds seconds() const;

 private:
  double shared_step() const;  // tokens of a step of several prompts

  const PrefillCost& cost_;
  const double full_step_;
  double work_ = 0;
  double steps_ = 0;                     // of prompts that share theirs with nobody
  int64_t tokens_ = 0, few_tokens_ = 0;  // few: of the others
  int64_t lacking_ = 0;                  // tokens that the last steps of the former could take
  int64_t filler_tokens_ = 0;
  double filler_pairs_ = 0;  // of a token
};

}  // namespace baton
