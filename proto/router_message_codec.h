// Converts router messages between struct and wire; control_codec.h has the limits. Pure functions,
// any thread.
#pragma once

#include "common/status.h"
#include "proto/messages.h"

namespace baton {

namespace wire {
class RouterMessage;
}  // namespace wire

void EncodeMessage(const RouterMessage& in, wire::RouterMessage* out);
absl::StatusOr<RouterMessage> DecodeMessage(const wire::RouterMessage& in);

}  // namespace baton
