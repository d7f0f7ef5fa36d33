// Converts worker reports between struct and wire; control_codec.h has the limits. Pure functions,
// any thread.
#pragma once

#include "common/status.h"
#include "proto/messages.h"

namespace baton {

namespace wire {
class WorkerEvent;
}  // namespace wire

void EncodeEvent(const WorkerEvent& in, wire::WorkerEvent* out);
absl::StatusOr<WorkerEvent> DecodeEvent(const wire::WorkerEvent& in);

}  // namespace baton
