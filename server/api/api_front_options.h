// Options of the API. Plain data, set at the start of the process.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/settings.h"
#include "server/access/api_keys.h"
#include "server/access/host_names.h"
#include "server/api/answer_store.h"
#include "server/api/api_request.h"
#include "server/api/reasoning_names.h"
#include "server/api/slo_limits.h"

namespace baton {

class Tracer;  // of server/tracing

struct ApiFrontOptions {
  std::string cors_origin;  // Access-Control-Allow-Origin; empty: no such header
  // A stream that is silent for so long gets blank lines (sse_event.h), so that proxies keep it
  // open.
  absl::Duration sse_keepalive = absl::Seconds(15);
  RequestSettings requests;
  ReasoningNames reasoning_names = ReasoningNames::kBoth;  // of a chat's messages
  // Bodies up to so many bytes are prepared on the front thread; up to fewer, if 0.5 ms do not
  // suffice for as many (text_speed.h).
  int64_t inline_text = 4 << 10;
  // Bytes of the SegmentCache (text/segment_cache.h); 0: none.
  int64_t text_cache = 64 << 20;
  // Bytes of the bodies that wait for a text thread; a request beyond them gets 429.
  int64_t text_queue = 256 << 20;
  // For the template and the tokenizer, from the start of a request's text work; then it gets 400.
  absl::Duration text_deadline = absl::Seconds(10);
  // From the arrival of a request for tokens to its end; a client may ask for less
  // (x-request-timeout-ms).
  absl::Duration request_timeout = absl::Hours(24);
  AnswerStoreOptions answers;
  SloLimits slo;
  bool ui = true;  // serves the page /ui
};

// Declares the settings server.* of the API.
void DeclareApiFront(ApiFrontOptions* options, Settings* settings);

// Facts about the process.
struct ApiFrontFacts {
  std::string version;
  int expected_workers = 0;          // for "loading" messages; 0: unknown
  const ApiKeys* keys = nullptr;     // null: nobody needs a key
  const HostNames* hosts = nullptr;  // by which it may be called; null: any
  bool has_ui = true;                // serves the page /ui
  Tracer* tracer = nullptr;          // of requests for tokens; null: none is traced
};

}  // namespace baton
