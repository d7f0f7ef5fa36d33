#include "server/http/http_server_options.h"

namespace baton {

void DeclareHttpServer(HttpServerOptions* options, Settings* settings) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const absl::Duration min = absl::Milliseconds(10), day = absl::Hours(24);
  settings->Text("server.host", &options->host, "address or name that the HTTP API binds");
  settings->Int("server.port", &options->port, 0, 65535, "port of the HTTP API; 0 picks one");
  settings->Bytes("server.max_header", &options->limits.max_header, 1024, kMiB,
                  "bytes of a header block");
  settings->Bytes("server.max_body", &options->limits.max_body, 0, 1024 * kMiB,
                  "bytes of a body; 0 = min(64MiB, 32 B x context), at least 1MiB");
  settings->Int("server.max_connections", &options->max_connections, 1, 1000000,
                "open connections; more are refused with 503");
  settings->Duration("server.header_timeout", &options->header_timeout, min, day,
                     "for a whole header block");
  settings->Duration("server.body_timeout", &options->body_timeout, min, day,
                     "in which a body brings less than 1 KiB/s on average");
  settings->Duration("server.idle_timeout", &options->idle_timeout, min, day,
                     "of an idle connection after a request");
  settings->Duration("server.write_timeout", &options->write_timeout, min, day,
                     "without progress of a response");
  settings->Choice<bool>("server.half_close", &options->finish_half_closed,
                         {{"cancel", false}, {"finish", true}},
                         "what a client that closes its sending side wants");
  settings->Bytes("server.max_unsent", &options->max_unsent, 4096, 1024 * kMiB,
                  "response bytes a slow client may leave unread before it is cancelled");
}

}  // namespace baton
