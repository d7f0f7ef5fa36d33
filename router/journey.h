// One request's life at the router: its attempts, its tokens in order, its end. Part of the Router,
// on its thread; decides nothing about workers (Router aims it), sends nothing itself.
//
//   waiting --Dispatch--> prefilling --token--> streaming --End--> ending --parts ended--> over
//      ^                 |                     |
//      +---- Recall -----+---------------------+   a part failed, or its worker was lost
//
// Tokens depend on (tokens so far, sampling, position) alone, so an attempt that starts with the
// prompt and the tokens so far goes on exactly where the last one stopped.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/state_machine.h"
#include "common/status.h"
#include "router/policy.h"
#include "router/prefix_memory.h"
#include "router/router.h"

namespace baton {

enum class JourneyState {
  kWaiting,     // for a worker
  kPrefilling,  // at workers; the attempt has brought no token yet
  kStreaming,   // the attempt brings tokens
  kEnding,      // told to have ended; its workers have been told to cancel
  kOver
};
const MachineTable& JourneyTable();

// Of the workers of a plan; empty: it has none. heads: of Plan::HeadWorkers.
struct PlanNames {
  std::string prefill{}, decode{};
  std::vector<std::string> heads{};
};

class Journey {
 public:
  struct Failure {
    FailoverCause cause = FailoverCause::kPartFailed;
    std::string message;     // empty: all is well
    Incarnation worker = 0;  // that was lost or said so
  };

  // options outlive it.
  Journey(RequestId id, uint64_t sequence, GenerateRequest request, const RouterOptions& options,
          absl::Time now);

  RequestId id() const { return id_; }
  const std::string& name() const { return request_.name; }
  uint64_t sequence() const { return sequence_; }  // order of submission
  Epoch epoch() const { return epoch_; }
  JourneyState state() const { return state_; }
  bool dispatched() const {
    return state_ == JourneyState::kPrefilling || state_ == JourneyState::kStreaming;
  }
  bool lives() const { return dispatched() || state_ == JourneyState::kWaiting; }
  const Plan& plan() const { return plan_; }  // of the attempt that runs
  // Of one of its workers, be it lost.
  const std::string& NameOf(Incarnation worker) const;

  // When the state it is in has lasted too long.
  absl::Time Alarm() const;
  // Its request's own time is over.
  bool IsLate(absl::Time now) const { return deadline_ <= now; }

  // A request that was preempted so often gets pages to its end, and is preempted no more.
  static constexpr int kMaxPreemptions = 3;
  // Of its prompt (prefix_memory.h); page_tokens is the same in every call.
  const std::vector<uint64_t>& Pages(int32_t page_tokens);
  // What the next attempt must do, or the running one does.
  AttemptSpec Shape() const;

  // Starts an attempt; raises the epoch. Then the commands of this attempt can be made.
  void Dispatch(const Plan& plan, const PlanNames& names, absl::Time now);
  PrefillRequest MakePrefillRequest(const Ticket& ticket, const TransferPeer& sink,
                                    const Inflow& inflow) const;
  // Of one of the plan's heads, and its last slice.
  PrefillRequest MakeHeadRequest(const RelayRound& slice) const;
  DecodeRequest MakeDecodeRequest(const TicketId& ticket_id) const;
  // Ends the attempt: what it still says is stale.
  void Recall(absl::Time now);
  // The request is over for its client; its parts may still run.
  void End(absl::Time now);
  void Close() { state_ = JourneyState::kOver; }
  absl::Time ended() const { return ended_; }
  // Workers that still hold a part of the running attempt, each once: decode worker, prefill worker
  // (tail), heads.
  std::vector<Incarnation> OpenWorkers() const;

  // Appends an EmitToken for every token whose turn it is now. Stale tokens are ignored. Error: the
  // worker says what it cannot know (protocol violation).
  absl::Status OnToken(Incarnation from, const TokenOut& token, absl::Time now,
                       std::vector<RouterEffect>* effects);
  absl::Status OnPromptComputed(Incarnation from, const PromptComputed& computed, absl::Time now);
  absl::Status OnPartEnded(Incarnation from, const PartEnded& ended, absl::Time now);
  void OnNoRoom(absl::Duration expected_wait, absl::Time now);
  // Once after the running attempt's first token, if its prediction could know what was to be
  // computed: no decode worker was full, and no KV was found that nobody knew of.
  std::optional<FirstTokenOutcome> TakeOutcome();
  void OnWorkerLost(Incarnation worker, const std::string& name);

  // The last token has been emitted; end_reason says which kind it was.
  bool complete() const { return complete_; }
  EndReason end_reason() const { return end_reason_; }
  // Why no part that runs can bring the next token.
  Failure Broken() const;
  // Whom the broken attempt could have done without: who was lost or failed; of handoffs who was
  // at an end of several, or else the receiver of the first. 0: that was not said.
  Incarnation Culprit() const;
  // Handoffs of a relay broke, and one more report may tell whose fault it was.
  bool MayHearMore(absl::Time now) const;
  // A relay that has brought no token is late, and its links are to be looked at; then again in a
  // while.
  bool MustLook(absl::Time now) const { return look_at_ <= now; }
  void Looked(absl::Time now);
  // Of the running relay: how many times as long as predicted it has taken so far; 1 at least.
  double Lateness(absl::Time now) const;
  // One worker may have the KV of the first slice, and is predicted to have it.
  void RecordFirstSlice();
  // The running attempt's row was preempted: nothing failed, it only must be dispatched anew.
  bool preempted() const { return preempted_; }
  // The running attempt has brought a token, in its turn or early.
  bool attempt_spoke() const { return attempt_spoke_; }
  // A slice of its relay has been handed over, so the prompt is being computed.
  bool a_head_ended() const { return open_heads_.size() < plan_.HeadWorkers().size(); }
  // So far that it was not this request that broke the attempt.
  bool attempt_got_on() const;

  int32_t tokens_left() const {
    return request_.max_tokens - static_cast<int32_t>(produced_.size());
  }
  Timeline MakeTimeline(absl::Time now) const;

  // Written by the Router alone.
  int failures = 0;       // attempts that broke, since the request last got on
  int lost_attempts = 0;  // attempts whose worker or handoff broke, since it last got on
  int moves = 0;          // attempts given up for a worker with room
  int preemptions = 0;    // attempts that lost their pages
  bool may_relay = true;  // none of its relays broke
  bool mended = false;    // one of its relays went on with another worker for a lost one
  std::vector<int64_t> crossed_before;      // of the running relay's hops: LinkRate::chain_bytes
  std::vector<CachedPrefix> cached;         // when it was dispatched last
  int recompute_reason = 0;                 // of the running attempt: why there was one before
  std::vector<Incarnation> avoid;           // workers that are asked only when nobody else is there
  std::vector<Incarnation> failed_senders;  // prefill workers of failed handoffs
  absl::Time alarm;                         // that is set for it

 private:
  void RecordComputed();
  void RecordBroken(Incarnation from, PartFault fault);
  void RecordFirstToken(absl::Time now);
  void Emit(const TokenOut& token, absl::Time now, std::vector<RouterEffect>* effects);
  bool first_of_attempt_emitted() const { return produced_.size() > produced_before_; }
  // A prefill worker that has handed over, or only has its last acknowledgement to get, is not
  // needed any more; heads neither, once the tail, which had all their KV, has computed a token.
  bool needs_prefill() const { return !first_of_attempt_emitted() || !decode_spoke_; }
  bool needs_heads() const { return !attempt_spoke_; }

  const RequestId id_;
  const uint64_t sequence_;
  GenerateRequest request_;  // without its prompt once it has ended
  const RouterOptions& options_;
  MachineState<JourneyState> state_;
  const absl::Time submitted_, deadline_;
  std::vector<int32_t> produced_;  // emitted, stop token included
  bool complete_ = false;
  EndReason end_reason_ = EndReason::kLength;
  absl::Time waiting_since_, ended_;
  std::optional<std::vector<uint64_t>> pages_;
  Incarnation kept_at_ = 0;  // the worker that computed the prompt last, and how much of it
  int32_t kept_tokens_ = 0;

  // The attempt.
  Epoch epoch_ = 0;
  absl::Time dispatched_at_;
  bool surprised_ = false;  // its prediction could not be right
  std::optional<FirstTokenOutcome> outcome_;
  Plan plan_;
  PlanNames names_;
  absl::Time look_at_ = absl::InfiniteFuture();      // of a relay without a token
  absl::Time silent_until_;                          // when it must have given a sign of life
  size_t produced_before_ = 0;                       // tokens emitted by earlier attempts
  bool prefill_open_ = false, decode_open_ = false;  // parts not ended
  std::vector<Incarnation> open_heads_;
  bool decode_spoke_ = false;  // so the handoff is done
  bool attempt_spoke_ = false;
  bool preempted_ = false;
  Failure failure_;
  absl::Time failed_at_;
  // Handoffs of the attempt that broke by themselves: from whom to whom.
  std::vector<std::pair<Incarnation, Incarnation>> broken_hops_;
  std::map<int32_t, TokenOut> early_;  // by position: decode was faster than the first token

  Timeline timeline_;
};

}  // namespace baton
