#include "router/router_options.h"

namespace baton {

void DeclareRouter(RouterOptions* options, Settings* settings) {
  settings->Int("router.max_waiting", &options->max_waiting, 1, 1000000,
                "requests not ended; beyond it the answer is 429");
  settings->Int("router.max_attempts", &options->max_attempts, 1, 100,
                "attempts in a row that a worker fails before the request fails");
  settings->Int(
      "router.max_lost_attempts", &options->max_lost_attempts, 1, 1000,
      "attempts in a row that lose a worker or a handoff before the request counts as the cause");
  settings->Bool(
      "router.local", &options->local,
      "one worker may compute a prompt and decode, whatever its role, where that is sooner");
  DeclareRelayRules(&options->relay, settings);
  settings->Duration("router.worker_wait", &options->worker_wait, absl::ZeroDuration(),
                     absl::Hours(1), "a request without any worker left waits before it fails");
  settings->Duration("router.worker_silence", &options->worker_silence, absl::Seconds(2),
                     absl::Hours(1), "without a word of a worker before it counts as lost");
  settings->Duration(
      "router.engine_patience", &options->engine_patience, absl::Seconds(1), absl::Hours(1),
      "a worker whose engine has been in one step for so long, and for three times what it should "
      "take, gets nothing new, and after twice as long its requests go on elsewhere");
}

}  // namespace baton
