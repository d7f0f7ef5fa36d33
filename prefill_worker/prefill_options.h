// What a prefill scheduler is told once, at its start.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/state_machine.h"
#include "engine/model/rope.h"
#include "engine/step/backend.h"

namespace baton {

struct PrefillOptions {
  Incarnation self = 0;      // a sink of this incarnation is this worker
  int32_t vocab = 0;         // token ids are in [0, vocab)
  int32_t max_context = 0;   // tokens
  int32_t chunk_tokens = 0;  // most tokens of one prompt in a step; 0 = as the step's budget allows
  int32_t max_slice_tokens = 8192;  // of a relay's rank
  // A slice meets whole segments of so many keys of its inflow while they arrive; 0: it waits for
  // the whole layer, as in KV-Runahead.
  int32_t segment_keys = kSliceKeys;
  // A head passes on what it has as it comes; false: layer by layer, when the slice and all before
  // it are there, as in KV-Runahead.
  bool cut_through = true;
  int32_t open_ahead = 4;  // prompts with an OPEN out or a promise in hand that do not run yet
  int32_t max_prompts = 4096;
  int32_t stretch = 3;
  RopeDesc rope{};       // of the model: which range a request has
  bool reuse_kv = true;  // prompts begin with pages of earlier ones that are still there
  // A prompt that gets nowhere for so long ends with kFailed: the last bound, when no other timer
  // has ended the wait for its turn, its promise, its pages or the end of its handoff.
  absl::Duration wait_timeout = absl::Minutes(10);
  // What a rank has of its slice is kept so long after it has handed over or its attempt broke, and
  // as long as it had taken, if nobody wants its pages.
  absl::Duration kept_slice_time = absl::Seconds(3);
  TransitionCounts* transitions = nullptr;  // counts transitions; tests only
};

}  // namespace baton
