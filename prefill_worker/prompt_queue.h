// The prompts of a worker, and whose turn it is: to compute and to send OPEN. Engine thread.
//
// Order of computing: least remaining tokens first, so a short prompt passes a long one at the next
// step. A prompt overtaken by more than `stretch` times its own length goes first and stays first
// (prefill_scheduler.h has the bound that follows).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/ticket.h"
#include "prefill_worker/prompt.h"

namespace baton {

class PromptQueue {
 public:
  explicit PromptQueue(int stretch) : stretch_(stretch) {}

  Prompt* Add(std::unique_ptr<Prompt> prompt);
  void Remove(const Prompt* prompt);

  int size() const { return static_cast<int>(prompts_.size()); }
  const std::vector<std::unique_ptr<Prompt>>& prompts() const { return prompts_; }  // as admitted
  struct Found {                                                                    // nullptr: none
    Prompt* prompt = nullptr;
    PromptRound* round = nullptr;
  };
  // Of the ticket's handoff, which was opened and has not ended.
  Found Find(const TicketId& ticket) const;
  // The same of a push.
  Found FindPush(const TicketId& ticket) const;
  // Whose inflow may still arrive.
  Found FindInflow(const TicketId& ticket) const;
  // Whose slices are kept, or are to be, for this prompt; nullptr: none.
  Prompt* FindKeptFor(const Prompt& prompt) const;
  // The one that is kept the longest, but for `except`; nullptr: none.
  Prompt* FirstKept(const Prompt* except) const;
  // Valid until the next call.
  const std::vector<Prompt*>& Select(const std::function<bool(const Prompt&)>& which);

  // Those that can run, in their order of computing. Valid until the next call.
  const std::vector<Prompt*>& InOrder();
  bool IsAged(const Prompt& prompt) const;
  // n_tokens of `computed` are computed now: prompts admitted before it that could run were
  // overtaken.
  void CountOvertaking(const Prompt& computed, int n_tokens);
  // Of those `may` allows, the first to send OPEN; nullptr: none.
  Prompt* NextToOpen(const std::function<bool(const Prompt&)>& may) const;
  // Prompts with an OPEN out or a promise in hand that do not run yet, nor wait for room.
  int OpenedAhead() const;

 private:
  Found FindRound(const std::function<bool(const PromptRound&)>& which) const;

  const int stretch_;
  std::vector<std::unique_ptr<Prompt>> prompts_;
  std::vector<Prompt*> selected_;  // scratch
};

}  // namespace baton
