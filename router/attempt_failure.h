// Causes of broken attempts: AttemptFault collects those of one attempt and finds the worker at
// fault; FailureRecord counts them over a request's attempts. Part of the Router, on its thread.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "router/policy.h"
#include "router/router_messages.h"
#include "router/router_options.h"

namespace baton {

struct AttemptFailure {
  FailoverCause cause = FailoverCause::kPartFailed;
  std::string message{};   // empty: no failure
  Incarnation worker = 0;  // the worker that was lost or reported the failure
};

// The faults of one attempt, as its parts reported them.
class AttemptFault {
 public:
  using Hop = std::pair<Incarnation, Incarnation>;  // sender, receiver
  using Handoffs = std::map<TicketId, Hop>;

  // blame_wait: further reports about broken handoffs are awaited for so long. handoffs: all of the
  // attempt's.
  AttemptFault(absl::Duration blame_wait, Handoffs handoffs)
      : blame_wait_(blame_wait), handoffs_(std::move(handoffs)) {}

  // A part that the attempt needs has failed, or was given up by its worker `from`.
  void OnPartFailed(Incarnation from, const PartEnded& ended, absl::Time now);
  // A worker whose part was needed was lost. role: "head", for example.
  void OnWorkerLost(const char* role, Incarnation worker, const std::string& name);

  const AttemptFailure& failure() const { return failure_; }  // the latest
  // The worker to replace: the one lost or failed; for broken handoffs, the worker that two of them
  // share, else the receiver of the first. 0 if unknown.
  Incarnation Culprit() const;
  // True if handoffs broke and one more report may tell which worker is at fault.
  bool MayHearMore(absl::Time now) const { return hops_.size() < 2 && now < AwaitedUntil(); }
  std::optional<absl::Time> AwaitedUntil() const;                // empty: no handoff broke
  const std::vector<Hop>& broken_hops() const { return hops_; }  // broke by themselves, each once

 private:
  const absl::Duration blame_wait_;
  AttemptFailure failure_;
  absl::Time failed_at_;
  const Handoffs handoffs_;
  std::vector<Hop> hops_;
};

// Counts how often a request's attempts broke in a row, and knows which workers to ask last.
class FailureRecord {
 public:
  // `options` outlive the record.
  explicit FailureRecord(const RouterOptions& options) : options_(options) {}

  // Counts an attempt that broke; earlier ones count no more if it got on (Attempt::got_on). Error:
  // the request is to be given up.
  absl::Status Count(const AttemptFailure& failure, bool got_on);
  // The next attempts ask this worker last.
  void Blame(Incarnation worker);
  // Blames a broken handoff on its receiver, the next time on the sender too. In a relay that has
  // not brought a token (spoke) it may have been any handoff: the heads' parts are those that the
  // next attempt can do without.
  void BlameHandoff(const Plan& plan, bool spoke);
  // Workers to take only when no other can.
  const std::vector<Incarnation>& avoid() const { return avoid_; }

 private:
  const RouterOptions& options_;
  int failures_ = 0;  // attempts that a part failed, or all were silent in, since one got on
  int losses_ = 0;    // attempts that lost a worker or a handoff, since one got on
  std::vector<Incarnation> avoid_;
  std::vector<Incarnation> failed_senders_;  // prefill workers of failed handoffs
};

}  // namespace baton
