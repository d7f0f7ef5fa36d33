// Options of the HTTP server. Plain data, set at the start of the process.
#pragma once

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "common/settings.h"
#include "common/status.h"
#include "server/http/http_parser.h"
#include "server/http/tls_context.h"

namespace baton {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an IP address
  int port = 0;                    // 0: the system picks one; -1: no TCP
  TlsFiles tls;                    // of TCP; none: plain
  std::string uds;                 // path of a Unix socket too; empty: none
  int uds_mode = 0660;             // of its file
  HttpLimits limits;
  // For one more the idlest is closed, or if none is idle, the new one is refused with 503.
  int max_connections = 10000;
  int max_per_address = 0;  // further ones are refused with 503; 0: half of max_connections
  int max_per_key = 0;  // the same of an owner (HttpRequest::owner), whose idlest is closed first
  int max_handshakes = 256;  // of TLS, under way; one more makes the oldest end
  absl::Duration handshake_timeout = absl::Seconds(10);
  absl::Duration header_timeout = absl::Seconds(10);  // of a whole header block
  // A body must bring at least 1 KiB/s on average over this window; earlier bytes do not count.
  absl::Duration body_timeout = absl::Seconds(30);
  // A body is not too slow before so much time has passed; body_timeout if that is shorter.
  absl::Duration slow_body_grace = absl::Seconds(5);
  absl::Duration idle_timeout = absl::Seconds(620);  // between requests
  // In each write_timeout a client must take so many bytes per second of what waits for it.
  absl::Duration write_timeout = absl::Seconds(30);
  size_t min_write_rate = 128;
  // Bytes of requests that are not whole yet, of all connections and of one address; who sends more
  // gets 503. Each is at least one request of the largest size.
  size_t max_incoming = 256 << 20, max_incoming_per_address = 32 << 20;
  // Memory of answers that wait for slow clients, likewise; beyond it the slowest is given up.
  size_t max_unsent_total = 256 << 20, max_unsent_per_address = 24 << 20;
  // Share of the loop's time for what an address sends, beyond a burst (FairQueue): its requests
  // wait then, those of others do not. 1: no bound.
  double loop_share_per_address = 0.25;
  bool finish_half_closed = false;  // a client that shuts down its sending side still wants answers
  size_t max_unsent = 1 << 20;      // bytes of answers that wait for a slow client; beyond: OnGone
};

// Where clients connect: "https://127.0.0.1:8000 and unix:/run/baton.sock". port: that was bound.
std::string PlacesOf(const HttpServerOptions& options, int port);

// The checks of files that HttpServer::Start makes, for a process that is not the server's.
absl::Status CheckFiles(const HttpServerOptions& options);

// Declares the settings server.* of sockets and their limits.
void DeclareHttpServer(HttpServerOptions* options, Settings* settings);

}  // namespace baton
