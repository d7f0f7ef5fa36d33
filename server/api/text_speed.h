// How much text a thread prepares in a given time, measured on the very model and machine.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "server/api/served_model.h"

namespace baton {

// Bytes that the model's tokenizer turns into tokens within `limit`, by the fastest of three runs;
// takes a few milliseconds. Without a tokenizer: the max, since prompts are token ids then.
int64_t TextBytesWithin(const ServedModel& model, absl::Duration limit);
// Bytes of text that the front thread works on itself: `wanted`, but no more than 0.5 ms suffice
// for.
int64_t InlineTextBytes(int64_t wanted, const ServedModel& model);

}  // namespace baton
