// Predicts how long each worker would let an attempt wait, and chooses the workers with the minimal
// wait (policy.h): by what workers report (membership.h), what they were sent (ledger.h), and how
// far earlier predictions were off. Part of the Router, on its thread.
#pragma once

#include "planner/plan_offset.h"
#include "router/broken_links.h"
#include "router/ledger.h"
#include "router/membership.h"

namespace baton {

class Predictor {
 public:
  // References outlive the predictor. local: PlanKinds::kSparing, else kByRole.
  Predictor(RelayRules relays, bool local, const Membership& members, const Ledger& ledger,
            const BrokenLinks& broken_links)
      : relays_(std::move(relays)),
        local_(local),
        members_(members),
        ledger_(ledger),
        broken_links_(broken_links) {}

  // Returns the plan with the minimal predicted wait. Workers of `avoid` are taken only when no
  // other worker can, and never for a relay. Empty: no worker that takes requests could ever hold
  // the request.
  std::optional<Plan> Choose(const AttemptSpec& spec, const std::vector<Incarnation>& avoid,
                             absl::Time now) const;
  // Returns the relay with another worker in place of the rank or decode worker `lost`. The other
  // worker takes requests and is none of `avoid`.
  std::optional<Plan> Replace(const Plan& relay, Incarnation lost, const AttemptSpec& spec,
                              const std::vector<Incarnation>& avoid, absl::Time now) const;
  // Workers that take requests and are none of `avoid`.
  std::vector<Candidate> Candidates(const AttemptSpec& spec, const std::vector<Incarnation>& avoid,
                                    absl::Time now) const;
  // True if workers that take requests could ever hold the request.
  bool Fits(const AttemptSpec& spec) const;
  // Predicted seconds of the prompt alone, the workers of the plan idle. They have joined.
  double OwnPrefillSeconds(const Plan& plan, const AttemptSpec& spec) const;

  // Time from now to the plan's first token, as such predictions turned out; infinite: unknown.
  absl::Duration Expected(const Plan& plan, const AttemptSpec& spec) const;
  // ratio: actual / predicted time to the plan's first token; later plans are corrected by it.
  void OnFirstToken(const Plan& plan, const AttemptSpec& spec, double ratio);
  // Does so with a plan of one worker that found cached what was expected: later predictions of its
  // kind are corrected by what this one lacked.
  void OnUsualFirstToken(const Plan& plan, double ratio);
  // Does so with the mean time between tokens of a request that was not dispatched again.
  void OnGaps(const Plan& plan, double seconds);

 private:
  std::optional<Plan> Best(const AttemptSpec& spec, const std::vector<Incarnation>& avoid,
                           absl::Time now) const;
  // Seconds by which prompts that come later make the first token later.
  double PassedSeconds(const Plan& plan, const AttemptSpec& spec, absl::Time now) const;
  struct KnownCosts {  // for workers that have not measured theirs
    PrefillCost prefill;
    StepCost step;
  };
  KnownCosts Known() const;
  PrefillCost CostAt(const Membership::Member& worker, const KnownCosts& known) const;
  bool WantsRelay(const AttemptSpec& spec) const;
  double WaitingPerWorker() const;
  Candidate Consider(const Membership::Member& worker, const AttemptSpec& spec,
                     const KnownCosts& known, absl::Time now) const;

  const RelayRules relays_;
  const bool local_;
  const Membership& members_;
  const Ledger& ledger_;
  const BrokenLinks& broken_links_;
  PlanRecord record_;
  PlanOffset offsets_, gap_offsets_;
};

}  // namespace baton
