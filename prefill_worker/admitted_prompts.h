// The prompts of a worker from their admission to their end: who has a promise, pages, an inflow;
// what a handoff's end, a cancel or a deadline does to a prompt; what an ended attempt leaves to
// the next one. What computes next is the PrefillScheduler's. A plain object of the engine thread:
// events in, effects appended to *effects.
//
// States and deadlines: prompt.cc. All pages are taken when a prompt starts, in the order of
// the workers' incarnations, and kept until its handoffs have ended (docs/SCHEDULING.md,
// docs/RELAY.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/router_id.h"
#include "common/status.h"
#include "common/token_grammar.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "prefill_worker/kv_sender.h"
#include "prefill_worker/prefill_options.h"
#include "prefill_worker/prompt.h"
#include "prefill_worker/prompt_pages.h"
#include "prefill_worker/prompt_queue.h"
#include "proto/messages.h"

namespace baton {

class AdmittedPrompts {
 public:
  // Pool, index (null: KV is not reused) and effects outlive the prompts. open_ahead is positive.
  AdmittedPrompts(const PrefillOptions& options, const PrefillFacts& facts, KvPool* pool,
                  PrefixIndex* index, std::vector<PrefillEffect>* effects);

  // --- events, between steps and blocks. Events of unknown tickets and requests are ignored.
  // A request that can never run ends at once with kFailed and the reason. Ends earlier attempts at
  // the request (this one finds their KV); one that comes after a later one is ignored.
  // grammar: compiled from sampling.grammar; null: there is none.
  void Admit(PrefillRequest request, absl::Time now, SharedGrammar grammar = nullptr);
  void On(const HandoffPromised& event, absl::Time now);
  void On(const HandoffNoRoom& event, absl::Time now);
  void On(const HandoffEnded& event, absl::Time now);
  void On(const InflowArrived& event, absl::Time now);
  void On(const InflowFailed& event, absl::Time now);
  void Cancel(RequestId request, Epoch up_to);
  // Cancels the requests of one router; without it all. Returns how many prompts it ended.
  int CancelAll(std::optional<RouterId> router = std::nullopt);
  // Ends everything at once: the transfer room is gone and reads no page any more.
  void Abandon();
  void OnTime(absl::Time now);      // ends prompts without progress for too long
  absl::Time NextDeadline() const;  // the latest time of the next OnTime

  // --- for the scheduler
  void SendOpens(absl::Time now);
  // Takes the pages of a prompt whose turn it is, unless it has them. may_start: nobody who is
  // before it waits for pages. False: it waits, or has failed, because it may not wait.
  bool TakePages(Prompt* prompt, bool may_start, absl::Time now);
  // The slice at hand, whose KV another rank or the next slice waits for, is computed.
  void SliceComputed(Prompt* prompt);
  // The whole prompt is computed, and its first token drawn.
  void FirstToken(Prompt* prompt, int32_t token);
  // Ends a prompt now, or when its handoffs have: until then pages may still be read or written.
  void Stop(Prompt* prompt, EndReason reason, const absl::Status& why = absl::OkStatus(),
            PartFault fault = PartFault::kOwn);

  PromptQueue& queue() { return queue_; }
  const PromptQueue& queue() const { return queue_; }
  PromptPages& pages() { return pages_; }
  const PromptPages& pages() const { return pages_; }
  KvSender& sender() { return sender_; }
  int pages_held() const;  // by prompts, and by slices that ended attempts have left

 private:
  bool HoldPages(Prompt* prompt);
  void EndEarlier(const Prompt& next);
  void HandOverSlice(Prompt* prompt);
  // Ends the prompts that `which` allows; no later attempt continues them.
  int GiveUp(const std::function<bool(const Prompt&)>& which);  // how many it ended
  // Stops the attempt since a handoff broke; a later one may continue its slices.
  void Break(Prompt* prompt, const char* what, const TicketId& handoff, const absl::Status& status);
  void End(Prompt* prompt);
  void EndIfReleased(Prompt* prompt);

  const PrefillOptions options_;
  const PrefillFacts facts_;
  std::vector<PrefillEffect>& effects_;
  PromptPages pages_;
  PromptQueue queue_;
  KvSender sender_;
  int64_t next_serial_ = 0;
};

}  // namespace baton
