// Stamps at the worker's end of the control wire, for the stages of the time to the first token: a
// request's arrival before it waits for the engine thread, a prompt's report when it leaves. Pure
// functions; now: of the clock of WorkerPorts.
#pragma once

#include "absl/time/time.h"
#include "proto/control_client.h"
#include "proto/messages.h"

namespace baton {

// Stamps the requests that come (PrefillRequest::received).
void StampArrival(RouterEvent* event, absl::Time now);
// Sets PromptComputed::draw_us of a report that is about to leave.
void StampReport(WorkerReport* report, absl::Time now);

}  // namespace baton
