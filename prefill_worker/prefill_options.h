// Options of a PrefillScheduler, constant while the scheduler lives: what a user or a test sets,
// and what the worker tells at the start. Plain data.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/state_machine.h"
#include "engine/model/model_desc.h"
#include "engine/step/engine_options.h"

namespace baton {

struct PrefillOptions {
  int32_t chunk_tokens = 0;    // max tokens of one prompt in a step; 0: the step's budget
  int32_t open_ahead = 4;      // max prompts that have sent OPEN and do not run yet
  int32_t max_prompts = 4096;  // further prompts end at once with kFailed
  int32_t stretch = 3;         // bound of overtaking (prompt_queue.h)
  // A prompt without progress for so long ends with kFailed: the last bound, for waits (for its
  // turn, a promise, pages, the end of a handoff) that no other timer ends.
  absl::Duration wait_timeout = absl::Minutes(10);
  // How long an unfinished slice stays reusable after its attempt ended (plus the time it took),
  // unless its pages are needed.
  absl::Duration kept_slice_time = absl::Seconds(3);
  TransitionCounts* transitions = nullptr;  // counts transitions; tests only
};

// Facts about the worker.
struct PrefillFacts {
  Incarnation self = 0;              // a sink of this incarnation is this worker
  int32_t max_context = 0;           // tokens
  const ModelDesc* model = nullptr;  // outlives the scheduler
  StepLimits limits{};               // the engine's
};

}  // namespace baton
