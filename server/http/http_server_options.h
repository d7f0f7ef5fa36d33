// Options of the HTTP server. Plain data, set at the start of the process.
#pragma once

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "common/settings.h"
#include "server/http/http_parser.h"

namespace baton {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an IP address
  int port = 0;                    // 0: the system picks one
  HttpLimits limits;
  int max_connections = 10000;                        // further ones are refused with 503
  absl::Duration header_timeout = absl::Seconds(10);  // of a whole header block
  // A body must bring at least 1 KiB/s on average over this window; earlier bytes do not count.
  absl::Duration body_timeout = absl::Seconds(30);
  // A body is not too slow before so much time has passed; body_timeout if that is shorter.
  absl::Duration slow_body_grace = absl::Seconds(5);
  absl::Duration idle_timeout = absl::Seconds(620);  // between requests
  absl::Duration write_timeout = absl::Seconds(30);  // without progress
  bool finish_half_closed = false;  // a client that shuts down its sending side still wants answers
  size_t max_unsent = 1 << 20;      // bytes of answers that wait for a slow client; beyond: OnGone
};

// Declares the settings server.* of sockets and their limits.
void DeclareHttpServer(HttpServerOptions* options, Settings* settings);

}  // namespace baton
