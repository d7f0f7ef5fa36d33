// The place of a request in a distributed trace, as W3C Trace Context (www.w3.org/TR/trace-context)
// tells it. Plain values, pure functions: any thread.
#pragma once

#include <string>
#include <string_view>

namespace baton {

struct TraceContext {
  std::string trace_id{};   // 32 hexadecimal digits; empty: there is no trace
  std::string parent_id{};  // 16, of the client's span; empty: the trace begins here
  bool is_sampled = false;  // the client asks for spans, or Tracer has decided so
  std::string span_id{};    // 16, of the request's own span; empty: none is told

  bool is_known() const { return !trace_id.empty(); }
  // "4bf9...-00f0...": the trace, and the own span or else the client's; empty: no trace.
  std::string log_text() const;
  // The value of the header traceresponse: the own span. Empty: there is none.
  std::string response() const;
};

// Reads the header traceparent; unknown if it is malformed, as the specification says.
TraceContext ReadTraceparent(std::string_view header);

}  // namespace baton
