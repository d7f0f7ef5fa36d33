// One try to compute a request at a set of workers: what was sent, what came of it, and what broke.
// Each try is a new object, so nothing of an earlier one is left in it. Part of the Router, on its
// thread. Errors are violations of the control protocol by the worker that reports.
#pragma once

#include <map>
#include <utility>

#include "router/attempt_failure.h"
#include "router/scored_prompt.h"

namespace baton {

class Attempt {
 public:
  struct Order {  // what the workers are asked for
    Epoch epoch = 0;
    Plan plan{};
    AttemptSpec spec{};
    std::map<Incarnation, std::string> names{{0, ""}};  // of the plan's workers
    AttemptFault::Handoffs handoffs{};                  // between these workers
    absl::Duration since_submitted{};                   // when it is sent
    // Time to the first token, as predictions of its kind turn out; infinite: unknown.
    absl::Duration expected = absl::InfiniteDuration();
  };

  // wanted: the request. Times that the workers report are added to its timeline. References
  // outlive the attempt.
  Attempt(Order order, const GenerateRequest& wanted, const RouterOptions& options,
          Timeline* timeline, absl::Time now);

  const Order& order() const { return order_; }
  const Plan& plan() const { return order_.plan; }
  const AttemptSpec& spec() const { return order_.spec; }
  // Name of one of the plan's workers, also of a lost one; 0 has an empty one.
  const std::string& NameOf(Incarnation worker) const { return order_.names.at(worker); }
  // The time at which the attempt must be looked at.
  absl::Time Alarm() const;
  // Workers that still hold a part, each once: decode worker, prefill worker (tail), heads.
  std::vector<Incarnation> OpenWorkers() const;

  // next: position of the next token to emit. A later token is kept until its turn has come, which
  // TakeEarly tells; an earlier one has been emitted.
  absl::Status OnToken(Incarnation from, const TokenOut& token, int32_t next, absl::Time now);
  std::optional<TokenOut> TakeEarly(int32_t next);
  // A token of the attempt is emitted. Returns the log-probabilities of the prompt that go with it.
  std::vector<PromptLogprob> OnEmitted(absl::Time now);
  absl::Status OnPromptComputed(Incarnation from, const PromptComputed& computed, absl::Time now);
  absl::Status OnPromptLogprobs(Incarnation from, const PromptLogprobs& told, absl::Time now);
  absl::Status OnPartEnded(Incarnation from, const PartEnded& ended, absl::Time now);
  void OnNoRoom(absl::Duration expected_wait, absl::Time now);
  void OnWorkerLost(Incarnation worker);

  // Returns actual / predicted time to the first token, or until given up, once, and only if the
  // prediction could have been right: no decode worker was full, and the prompt was not scored.
  struct Outcome {
    double ratio = 0;
    // Cached KV was found that the router did not expect, or had hoped for.
    bool found_more = false;
    // One worker computed as many tokens of the prompt as was expected.
    bool is_as_expected = false;
  };
  std::optional<Outcome> TakeOutcome() { return std::exchange(outcome_, std::nullopt); }
  // Error: no attempt can meet the request, whose fault it is, and all tokens before that have been
  // emitted.
  absl::Status Hopeless() const;
  // Why no part that runs can bring the next token.
  AttemptFailure Broken() const;
  const AttemptFault& fault() const { return fault_; }
  // True if a relay without a token is late, so that another way must be looked for.
  bool IsLate(absl::Time now) const { return late_at_ <= now; }
  // Is not late until the relay is late by this much. Called while IsLate.
  void BearLateness(absl::Duration late);
  // The workers that computed the prompt, or its beginning, and how many tokens each has: their KV
  // may stay there, and a rank's may be for this request alone.
  const std::vector<CachedPrefix>& kept() const { return kept_; }
  // The relay is given up with this KV left; it counts as late as it is by now.
  void OnGivenUp(const std::vector<CachedPrefix>& kept, absl::Time now);
  // The row was preempted: nothing failed, the request is dispatched again.
  bool preempted() const { return preempted_; }
  // True once a token has come, in its turn or early.
  bool spoke() const { return spoke_; }
  // True if a slice of the relay has been handed over, so that the prompt is being computed.
  bool a_head_ended() const { return open_heads_.size() < plan().HeadWorkers().size(); }
  // True once so many tokens have come that the request itself is not the cause of a failure.
  bool got_on() const;
  // The request has ended: frees what only further tokens need.
  void DropTokens();

 private:
  void NoteOutcome(absl::Time now);
  // A prefill worker is needed until its KV is handed over, all but the last acknowledgement. Heads
  // that hand KV to the tail alone are needed until it, which has all of that by then, has computed
  // a token.
  bool needs_prefill(bool of_head) const {
    if (of_head && plan().push != RelayPush::kAll) return !spoke_;
    return !decode_spoke_ || (!of_head && n_emitted_ == 0);
  }

  const Order order_;
  const GenerateRequest& wanted_;
  const RouterOptions& options_;
  Timeline& timeline_;
  const absl::Time sent_;
  absl::Time silent_until_;                 // the attempt counts as stuck from then on
  absl::Time late_at_;                      // a relay without a token is late from then on
  bool surprised_;                          // the prediction could not have been right
  bool prefill_open_ = true, decode_open_;  // parts not ended
  std::vector<Incarnation> open_heads_;
  ScoredPrompt scored_;
  std::map<int32_t, TokenOut> early_;  // by position
  int n_emitted_ = 0;
  bool spoke_ = false, decode_spoke_ = false;  // once the decode worker spoke, the handoff is done
  bool preempted_ = false;
  bool found_more_ = false, is_as_expected_ = false;  // as in Outcome
  std::optional<Outcome> outcome_;
  std::vector<CachedPrefix> kept_;
  absl::Status verdict_;        // of a part whose fault is the request's
  bool awaits_tokens_ = false;  // the verdict counts after the tokens before it
  AttemptFault fault_;
};

}  // namespace baton
