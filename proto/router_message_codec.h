// Converts one router message between struct (messages.h) and wire (control.proto); control_codec.h
// has the limits, and the batches. Pure functions, any thread.
#pragma once

#include "common/status.h"
#include "proto/messages.h"

namespace baton {

namespace wire {
class RouterMessage;
}  // namespace wire

void EncodeMessage(const RouterMessage& in, wire::RouterMessage* out);
// InvalidArgument names the field that is out of range or missing.
absl::StatusOr<RouterMessage> DecodeMessage(const wire::RouterMessage& in);

}  // namespace baton
