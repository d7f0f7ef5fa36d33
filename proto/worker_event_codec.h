// Converts one event of a worker's report between struct (messages.h) and wire (control.proto);
// control_codec.h has the limits, and the reports. Pure functions, any thread.
#pragma once

#include "common/status.h"
#include "proto/messages.h"

namespace baton {

namespace wire {
class WorkerEvent;
}  // namespace wire

void EncodeEvent(const WorkerEvent& in, wire::WorkerEvent* out);
// InvalidArgument names the field that is out of range or missing.
absl::StatusOr<WorkerEvent> DecodeEvent(const wire::WorkerEvent& in);

}  // namespace baton
