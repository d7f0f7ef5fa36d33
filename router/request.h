// A request's life at the router: its tokens in order, its attempts, its end. Part of the Router,
// on its thread. Never chooses workers (RouterDispatch does) and never sends.
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
#include <memory>

#include "common/state_machine.h"
#include "router/attempt.h"

namespace baton {

enum class RequestState {
  kWaiting,     // no worker yet
  kPrefilling,  // dispatched; the attempt has brought no token yet
  kStreaming,   // the attempt brings tokens
  kEnding,      // over for the client; the workers were told to cancel
  kOver         // all parts have ended, or end_wait has passed
};
const MachineTable& RequestTable();

class Request {
 public:
  // `options` must outlive the request.
  Request(RequestId id, uint64_t sequence, GenerateRequest wanted, const RouterOptions& options,
          absl::Time now);

  RequestId id() const { return id_; }
  // The prompt is dropped when the request ends; what was told of it is not asked for again.
  const GenerateRequest& wanted() const { return wanted_; }
  // Tokens emitted, stop token included.
  const std::vector<int32_t>& produced() const { return produced_; }
  uint64_t sequence() const { return sequence_; }  // order of submission
  RequestState state() const { return state_; }
  bool dispatched() const {
    return state_ == RequestState::kPrefilling || state_ == RequestState::kStreaming;
  }
  bool lives() const { return dispatched() || state_ == RequestState::kWaiting; }
  Epoch epoch() const { return epoch_; }  // attempts so far
  // The running attempt; of a request that is ending, the last one while it may have open parts.
  // Null: the request waits.
  Attempt* attempt() const { return attempt_.get(); }
  bool has_open_parts() const { return attempt_ && !attempt_->OpenWorkers().empty(); }

  // The time at which the present state has lasted too long.
  absl::Time Alarm() const;
  // True once the request's own timeout has passed.
  bool IsLate(absl::Time now) const { return deadline_ <= now; }

  // A request preempted this often gets pages up to its end and is preempted no more.
  static constexpr int kMaxPreemptions = 3;
  // The prompt and the tokens generated so far, before End; those in [begin, end).
  std::vector<int32_t> Tokens(size_t begin = 0, size_t end = SIZE_MAX) const;
  // True if the log-probabilities of the prompt are still to be told, which is with the first
  // token.
  bool is_scored() const { return wanted_.prompt_logprobs >= 0; }
  AttemptSpec NextSpec() const;  // of the attempt that may follow

  // Starts an attempt. order: of NextSpec and the next epoch.
  void Dispatch(Attempt::Order order, absl::Time now);
  // Ends the attempt, for the reason `why` with the number `cause` (AttemptRecord): reports that
  // still come from it are stale.
  void Recall(int cause, const AttemptFailure& why, absl::Time now);
  // The request is over for its client; its parts may still run.
  void End(absl::Time now);
  void Close() { state_ = RequestState::kOver; }
  absl::Time ended() const { return ended_; }

  // The running attempt, if a report with this epoch is about it; null: the report is stale. Error:
  // a worker tells of an attempt that was not made (protocol violation).
  absl::StatusOr<Attempt*> Reported(const char* what, Epoch told);
  // Appends an EmitToken for every token whose turn it is now. Errors: as above, and those of the
  // attempt.
  absl::Status OnToken(Incarnation from, const TokenOut& token, absl::Time now,
                       std::vector<RouterEffect>* effects);

  // Why the last token is the last one, once it has been emitted.
  std::optional<EndReason> end_reason() const { return end_reason_; }
  int32_t tokens_left() const {
    return wanted_.max_tokens - static_cast<int32_t>(produced_.size());
  }
  Timeline MakeTimeline(absl::Time now) const;

  // Written by Router and RouterDispatch.
  FailureRecord failures;
  int moves = 0;          // attempts given up for a worker with room
  int preemptions = 0;    // attempts that lost their pages
  bool may_relay = true;  // none of its relays broke
  bool mended = false;    // one of its relays went on with another worker for a lost one
  // When it was tried last: names of the pages of Tokens, and who has them; none if no KV is
  // reused.
  std::vector<PageName> pages;
  std::vector<CachedPrefix> cached, tails;  // as in AttemptSpec
  int recompute_reason = 0;                 // why the attempt before the running one ended
  // The request waits for KV that another one computes (prompts_under_way.h), until then at most;
  // empty: it does not.
  std::optional<absl::Time> follows_until;
  bool may_follow = true;  // it has not waited in vain

 private:
  void Emit(const TokenOut& token, absl::Time now, std::vector<RouterEffect>* effects);
  int32_t next_position() const {
    return static_cast<int32_t>(wanted_.prompt.size() + produced_.size());
  }

  const RequestId id_;
  const uint64_t sequence_;
  GenerateRequest wanted_;
  const RouterOptions& options_;
  MachineState<RequestState> state_;
  const absl::Time submitted_, deadline_;
  absl::Time waiting_since_, ended_;
  std::vector<int32_t> produced_;
  std::optional<EndReason> end_reason_;
  std::vector<CachedPrefix> kept_;  // by the last attempt that computed the prompt (Attempt::kept)
  Timeline timeline_;
  Epoch epoch_ = 0;
  std::unique_ptr<Attempt> attempt_;  // writes into the timeline
};

}  // namespace baton
