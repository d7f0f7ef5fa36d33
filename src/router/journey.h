// One request's life at the router: its attempts, its tokens in order, its end. Part of the Router,
// on its thread; decides nothing about workers (Router aims it), sends nothing itself.
//
//   waiting --Aim--> aimed --tokens--> complete --> (Router ends it)
//      ^               |
//      +--- Disarm ----+   a part failed, or its worker was lost
//
// Tokens depend on (tokens so far, sampling, position) alone, so an attempt that starts with the
// prompt and the tokens so far goes on exactly where the last one stopped.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/status.h"
#include "router/policy.h"
#include "router/router.h"

namespace baton {

class Journey {
 public:
  Journey(RequestId id, uint64_t sequence, GenerateRequest request, absl::Time now);

  RequestId id() const { return id_; }
  uint64_t sequence() const { return sequence_; }  // order of submission
  absl::Time deadline() const { return deadline_; }
  Epoch epoch() const { return epoch_; }
  bool aimed() const { return aimed_; }
  const Plan& plan() const { return plan_; }  // of the attempt that runs
  absl::Time waiting_since() const { return waiting_since_; }

  // A request that was preempted so often gets pages to its end, and is preempted no more.
  static constexpr int kMostPreemptions = 3;
  // What the next attempt must do, or the running one does.
  AttemptShape Shape() const;

  // Starts an attempt; raises the epoch. Then the commands of this attempt can be made.
  void Aim(const Plan& plan, const std::string& prefill_name, const std::string& decode_name,
           absl::Time now);
  PrefillRequest MakePrefillRequest(const Ticket& ticket, const TransferPeer& sink) const;
  DecodeRequest MakeDecodeRequest(const TicketId& ticket_id) const;
  // Ends the attempt: what it still says is stale.
  void Disarm(absl::Time now);
  // Workers that still hold a part of the running attempt, each once.
  std::vector<Incarnation> OpenWorkers() const;

  // Appends an EmitToken for every token whose turn it is now. Stale tokens are ignored. Error: the
  // worker says what it cannot know (protocol violation).
  absl::Status OnToken(Incarnation from, const TokenOut& token, absl::Time now,
                       std::vector<RouterEffect>* effects);
  absl::Status OnPromptComputed(Incarnation from, const PromptComputed& computed);
  absl::Status OnPartEnded(Incarnation from, const PartEnded& ended);
  void OnWorkerLost(Incarnation worker, const std::string& name);

  // The last token has been emitted; end_reason says which kind it was.
  bool complete() const { return complete_; }
  EndReason end_reason() const { return end_reason_; }
  // No part that runs can bring the next token: why. Empty: all is well.
  std::string Broken() const;
  // The running attempt's row was preempted: nothing failed, it only must be aimed anew.
  bool preempted() const { return preempted_; }
  // The running attempt has brought a token.
  bool attempt_spoke() const { return attempt_spoke_; }

  int32_t tokens_left() const {
    return request_.max_tokens - static_cast<int32_t>(produced_.size());
  }
  bool first_of_attempt_emitted() const { return produced_.size() > produced_before_; }
  Timeline MakeTimeline(absl::Time now) const;

  // Written by the Router alone.
  int failures = 0;                // attempts that broke
  int moves = 0;                   // attempts given up for a worker with room
  int preemptions = 0;             // attempts that lost their pages
  std::vector<Incarnation> avoid;  // workers whose part failed

 private:
  void Emit(const TokenOut& token, absl::Time now, std::vector<RouterEffect>* effects);

  const RequestId id_;
  const uint64_t sequence_;
  const GenerateRequest request_;
  const absl::Time submitted_, deadline_;
  std::vector<int32_t> produced_;  // emitted, stop token included
  bool complete_ = false;
  EndReason end_reason_ = EndReason::kLength;

  // The attempt.
  Epoch epoch_ = 0;
  bool aimed_ = false;
  absl::Time waiting_since_;
  Plan plan_;
  size_t produced_before_ = 0;                       // tokens emitted by earlier attempts
  bool prefill_open_ = false, decode_open_ = false;  // parts that have not ended
  bool decode_spoke_ = false;                        // so the handoff is done
  bool attempt_spoke_ = false;
  bool preempted_ = false;
  std::string failure_;
  std::map<int32_t, TokenOut> early_;  // by position: decode was faster than the first token

  Timeline timeline_;
};

}  // namespace baton
