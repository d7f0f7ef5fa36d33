// How much text a thread prepares in a given time, measured on the very model and machine.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "server/api/served_model.h"

namespace baton {

// Bytes that the model's tokenizer turns into tokens within `limit`, by the fastest of three runs;
// takes a few milliseconds. Without a tokenizer: the max, since prompts are token ids then.
int64_t TextBytesWithin(const ServedModel& model, absl::Duration limit);

}  // namespace baton
