// Options of a router. Plain data, set at the start of the process.
#pragma once

#include "absl/time/time.h"
#include "common/settings.h"
#include "common/state_machine.h"
#include "planner/relay_rules.h"

namespace baton {

// Defaults of RelayRules::min_tokens (tokens) and max_ranks (workers): the server's settings begin
// with them, and replays of traces compare them with no relays.
inline constexpr int kShippedRelayMinTokens = 256, kShippedRelayMaxRanks = 8;

struct RouterOptions {
  int max_waiting = 1024;  // requests not ended; beyond it Submit answers ResourceExhausted (429)
  // A request may be served by one worker where that is predicted to be better: its decode worker
  // computes the prompt, too, or its prefill worker decodes. False: only where no pair can.
  bool local = true;
  // Attempts in a row that may fail at a worker before the request fails. An attempt that brought 8
  // tokens resets the count.
  int max_attempts = 4;
  // Attempts in a row that may lose a worker or a handoff before the request is taken to be the
  // cause and fails.
  int max_lost_attempts = 8;
  // A relay that broke may go on once, with another worker in the lost one's place; any other
  // attempt after a relay that broke is no relay.
  RelayRules relay{};
  // A request whose workers were lost fails after so long without any worker.
  absl::Duration worker_wait = absl::Seconds(30);
  // A worker without a report for so long counts as lost: hung, stopped or cut off. Empty reports
  // count; infinite: never.
  absl::Duration worker_silence = absl::Seconds(3);
  // A worker whose engine has been in one turn for so long, and for three times what the turn's
  // step should take, stands still: it gets nothing new until it turns again. After twice as long
  // it counts as lost, if it has parts of requests.
  absl::Duration engine_patience = absl::Seconds(2);
  // An attempt without a sign of life (a token, the end of a part or of the prompt) for so long
  // (before the first sign: plus 20 times the predicted wait) is recalled and dispatched again.
  // Log-probabilities of a part of the prompt are a sign, too, and keep what is left of that wait.
  absl::Duration attempt_silence = absl::Minutes(5);
  // After a relay's handoff broke, reports of its other ranks and lost workers are awaited for so
  // long: they tell which worker to replace.
  absl::Duration blame_wait = absl::Milliseconds(200);
  // An ended request is remembered for so long, until its parts have ended.
  absl::Duration end_wait = absl::Seconds(30);
  // A gap between tokens that decode workers should keep, for the number of them that is told to
  // autoscalers (server.slo_itl); infinite: none.
  absl::Duration sizing_gap = absl::InfiniteDuration();
  TransitionCounts* transitions = nullptr;  // counts transitions; tests only
};

// Declares router.*.
void DeclareRouter(RouterOptions* options, Settings* settings);

}  // namespace baton
