// One request's life at the router: its attempts, its tokens in order, its end. Part of the Router,
// on its thread. Never chooses workers (the Router dispatches) and never sends.
//
//   waiting --Dispatch--> prefilling --token--> streaming --End--> ending --parts ended--> over
//      ^                 |                     |
//      +---- Recall -----+---------------------+   a part failed, or its worker was lost
//
// End leads to `ending` from waiting and prefilling too.
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
#include "router/scored_prompt.h"

namespace baton {

enum class JourneyState {
  kWaiting,     // no worker yet
  kPrefilling,  // dispatched; the attempt has brought no token yet
  kStreaming,   // the attempt brings tokens
  kEnding,      // over for the client; the workers were told to cancel
  kOver         // all parts have ended, or end_wait has passed
};
const MachineTable& JourneyTable();

// Names of a plan's workers; empty: no such worker. heads: in the order of Plan::HeadWorkers.
struct PlanNames {
  std::string prefill{}, decode{};
  std::vector<std::string> heads{};
};

class Journey {
 public:
  struct Failure {
    FailoverCause cause = FailoverCause::kPartFailed;
    std::string message;     // empty: no failure
    Incarnation worker = 0;  // the worker that was lost or reported the failure
  };

  // `options` must outlive the journey.
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
  const Plan& plan() const { return plan_; }  // the running attempt's
  // Name of one of the plan's workers, also of a lost one.
  const std::string& NameOf(Incarnation worker) const;

  // The time at which the present state has lasted too long.
  absl::Time Alarm() const;
  // True once the request's own timeout has passed.
  bool IsLate(absl::Time now) const { return deadline_ <= now; }

  // A request preempted this often gets pages up to its end and is preempted no more.
  static constexpr int kMaxPreemptions = 3;
  // Page hashes of the prompt (prefix_memory.h); page_tokens is the same in every call.
  const std::vector<uint64_t>& Pages(int32_t page_tokens);
  // True if the log-probabilities of the prompt are still to be told, which is with the first
  // token.
  bool is_scored() const { return request_.prompt_logprobs >= 0; }
  // The spec of the running attempt, or of the next one.
  AttemptSpec Shape() const;

  // Starts an attempt and raises the epoch. Make...Request then make the attempt's commands.
  void Dispatch(const Plan& plan, const PlanNames& names, absl::Time now);
  PrefillRequest MakePrefillRequest(const Ticket& ticket, const TransferPeer& sink,
                                    const Inflow& inflow) const;
  // The command for the head that computes `slice` as its last one.
  PrefillRequest MakeHeadRequest(const RelayRound& slice) const;
  DecodeRequest MakeDecodeRequest(const TicketId& ticket_id) const;
  // Ends the attempt: reports that still come from it are stale.
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
  absl::Status OnPromptLogprobs(Incarnation from, const PromptLogprobs& told, absl::Time now);
  absl::Status OnPartEnded(Incarnation from, const PartEnded& ended, absl::Time now);
  void OnNoRoom(absl::Duration expected_wait, absl::Time now);
  // Returns the outcome once, after the running attempt's first token, and only if the prediction
  // could have been right: no decode worker was full, no cached KV was found that the router did
  // not expect, and the prompt was not scored.
  std::optional<FirstTokenOutcome> TakeOutcome();
  void OnWorkerLost(Incarnation worker, const std::string& name);

  // Why the last token is the last one, once it has been emitted.
  std::optional<EndReason> end_reason() const { return end_reason_; }
  struct Verdict {
    Incarnation worker = 0;
    PartFault fault = PartFault::kUnreadable;
    std::string message{};
    bool of_prefill = false;
  };
  // Why no attempt can meet the request, once all tokens before that have been emitted. Null: one
  // may.
  const Verdict* Hopeless() const;
  // Why no part that runs can bring the next token.
  Failure Broken() const;
  // The worker to replace: the one lost or failed; for broken handoffs, the worker that two of them
  // share, else the receiver of the first. 0 if unknown.
  Incarnation Culprit() const;
  // True if handoffs of a relay broke and one more report may tell which worker is at fault.
  bool MayHearMore(absl::Time now) const;
  // True if a relay without a token is late, so that its links must be examined; sets the next
  // time.
  bool TakeLook(absl::Time now);
  // Time taken so far / time predicted, of the running relay; at least 1.
  double Lateness(absl::Time now) const;
  // Records that the first rank may hold the KV of its slice, so that the next attempt is planned
  // with it.
  void RecordFirstSlice();
  // True if the running attempt's row was preempted: nothing failed, the request is dispatched
  // again.
  bool preempted() const { return preempted_; }
  // True if the running attempt has brought a token, in its turn or early.
  bool attempt_spoke() const { return attempt_spoke_; }
  // True if a slice of the relay has been handed over, so that the prompt is being computed.
  bool a_head_ended() const { return open_heads_.size() < plan_.HeadWorkers().size(); }
  // True once the attempt has brought so many tokens that the request itself is not the cause of
  // its failure.
  bool attempt_got_on() const;

  int32_t tokens_left() const {
    return request_.max_tokens - static_cast<int32_t>(produced_.size());
  }
  Timeline MakeTimeline(absl::Time now) const;

  // Written by the Router alone.
  int failures = 0;       // attempts that broke since attempt_got_on was last true
  int lost_attempts = 0;  // of these, attempts that lost a worker or a handoff
  int moves = 0;          // attempts given up for a worker with room
  int preemptions = 0;    // attempts that lost their pages
  bool may_relay = true;  // none of its relays broke
  bool mended = false;    // one of its relays went on with another worker for a lost one
  std::vector<int64_t> crossed_before;  // LinkRate::chain_bytes of the relay's hops at its start
  std::vector<CachedPrefix> cached;     // expected when the request was dispatched last
  int recompute_reason = 0;             // why the attempt before the running one ended
  std::vector<Incarnation> avoid;       // workers to take only when no other can
  std::vector<Incarnation> failed_senders;  // prefill workers of failed handoffs
  absl::Time alarm;                         // the journey's time in the Router's list of alarms

 private:
  void RecordComputed();
  void RecordBroken(Incarnation from, PartFault fault);
  void RecordFirstToken(absl::Time now);
  void Emit(const TokenOut& token, absl::Time now, std::vector<RouterEffect>* effects);
  bool first_of_attempt_emitted() const { return produced_.size() > produced_before_; }
  // A prefill worker is needed until its KV is handed over, all but the last acknowledgement; heads
  // until the tail, which has all their KV by then, has computed a token.
  bool needs_prefill() const { return !first_of_attempt_emitted() || !decode_spoke_; }

  const RequestId id_;
  const uint64_t sequence_;
  // The prompt is dropped when the request ends, and what was told of it is not asked for again.
  GenerateRequest request_;
  const RouterOptions& options_;
  MachineState<JourneyState> state_;
  const absl::Time submitted_, deadline_;
  std::vector<int32_t> produced_;  // emitted, stop token included
  std::optional<EndReason> end_reason_;
  absl::Time waiting_since_, ended_;
  std::optional<std::vector<uint64_t>> pages_;
  Incarnation kept_at_ = 0;  // the worker that computed the prompt last, and how much of it
  int32_t kept_tokens_ = 0;

  // The attempt.
  Epoch epoch_ = 0;
  absl::Time dispatched_at_;
  bool surprised_ = false;  // the prediction could not have been right
  std::optional<FirstTokenOutcome> outcome_;
  Plan plan_;
  PlanNames names_;
  absl::Time look_at_ = absl::InfiniteFuture();      // when a relay without a token is examined
  absl::Time silent_until_;                          // the attempt counts as stuck from then on
  size_t produced_before_ = 0;                       // tokens emitted by earlier attempts
  bool prefill_open_ = false, decode_open_ = false;  // parts not ended
  std::vector<Incarnation> open_heads_;
  std::optional<Verdict> verdict_;  // of a part of the attempt
  bool decode_spoke_ = false;       // the decode worker sent a token, so the handoff is done
  bool attempt_spoke_ = false;
  bool preempted_ = false;
  Failure failure_;
  absl::Time failed_at_;
  // Handoffs of the attempt that broke by themselves: (sender, receiver).
  std::vector<std::pair<Incarnation, Incarnation>> broken_hops_;
  ScoredPrompt scored_;
  std::map<int32_t, TokenOut> early_;  // by position: tokens that came before the first one

  Timeline timeline_;
};

}  // namespace baton
