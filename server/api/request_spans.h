// The spans of a traced request that has ended, from the stages that its workers told the router
// (Timeline): so workers need no exporter, and one clock gives all times. As JSON of OTLP
// (opentelemetry-proto, trace.proto). Pure functions but for span ids, any thread.
//
//   POST /v1/chat/completions            the request, from its arrival to its end
//     text                               parse, template, tokenize
//     choice                             where a request has several
//       route                            waits for workers; before each attempt that waited
//       attempt                          with an error, where another one followed
//         prefill_queue, prefill         of each worker that computed a part of the prompt
//         transfer, decode_queue, decode
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/api/running_request.h"
#include "server/tracing/tracer.h"

namespace baton {

// now: of the clock that stamped the request; date: the same moment of the other one.
SpanList SpansOf(const RunningRequest& request, const FinishedRequest& facts,
                 std::string_view model, absl::Time now, absl::Time date);

// Returns what a request of OTLP has before its spans: the resource, which is this process, and the
// scope.
std::string OtlpHead(std::string_view service, std::string_view version);

}  // namespace baton
