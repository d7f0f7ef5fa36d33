// Orders the prompts of a worker: which one computes next, which one sends OPEN next. Engine
// thread.
//
// Order of computing: fewest remaining tokens first, so a short prompt overtakes a long one at the
// next step. A prompt overtaken by more than `stretch` times (its own length + 256) tokens goes
// first and stays first (docs/SCHEDULING.md has the bound that follows). Pointers to a prompt or a
// slice stay valid until the prompt is removed.
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
  std::unique_ptr<Prompt> Remove(const Prompt* prompt);

  int size() const { return static_cast<int>(prompts_.size()); }
  struct Work {  // still to be computed
    int64_t tokens = 0;
    double pairs = 0;  // (query, key) pairs of these tokens
    double pairs_of_token() const { return tokens > 0 ? pairs / static_cast<double>(tokens) : 0; }
  };
  Work queued() const;
  int n_running() const;
  // In the order of admission.
  const std::vector<std::unique_ptr<Prompt>>& prompts() const { return prompts_; }
  struct Found {  // null: none
    Prompt* prompt = nullptr;
    PromptSlice* slice = nullptr;
    SliceOutput* output = nullptr;
  };
  // Finds the open output with this ticket.
  Found FindOutput(const TicketId& ticket) const;
  // Finds the slice whose inflow has this id and may still arrive.
  Found FindInflow(const TicketId& id) const;
  // True if a ticket of `next`, which is not here yet, is not its alone: another prompt has it, or
  // two of its outputs or inflows. The transfer room takes each once.
  bool SharesTickets(const Prompt& next) const;
  // True if an earlier attempt that will leave its slices to this one is not over yet.
  bool AwaitsSlices(const Prompt& prompt) const;
  // Prompts that `which` allows, in the order of admission. Valid until the next call of Select or
  // InOrder.
  const std::vector<Prompt*>& Select(const std::function<bool(const Prompt&)>& which);

  // Prompts that can run, in the order of computing. Valid until the next call of Select or
  // InOrder.
  const std::vector<Prompt*>& InOrder();
  bool IsAged(const Prompt& prompt) const;  // overtaken so often that it goes first
  // Counts n_tokens of `computed` as overtaking every prompt that was admitted before and could run
  // or waits to send OPEN.
  void CountOvertaking(const Prompt& computed, int n_tokens);
  // The first prompt to send OPEN among those that `may` allows; nullptr: none.
  Prompt* NextToOpen(const std::function<bool(const Prompt&)>& may) const;
  // Prompts with an OPEN out or a promise in hand that do not run yet, nor wait for room.
  int OpenedAhead() const;

 private:
  const int stretch_;
  std::vector<std::unique_ptr<Prompt>> prompts_;
  std::vector<Prompt*> selected_;  // scratch
};

}  // namespace baton
