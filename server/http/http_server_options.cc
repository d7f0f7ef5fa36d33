#include "server/http/http_server_options.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton {

absl::Status CheckFiles(const HttpServerOptions& options) {
  if (options.port < 0 && options.uds.empty())
    return absl::InvalidArgumentError(
        "server.port is -1, for no TCP, and server.uds is empty: set one of them");
  return options.tls.any() ? TlsContext::Load(options.tls).status() : absl::OkStatus();
}

std::string PlacesOf(const HttpServerOptions& options, int port) {
  std::vector<std::string> places;
  if (options.port >= 0)
    places.push_back(absl::StrCat(options.tls.any() ? "https://" : "http://",
                                  options.host.find(':') == std::string::npos
                                      ? options.host
                                      : absl::StrCat("[", options.host, "]"),
                                  ":", port));
  if (!options.uds.empty()) places.push_back(absl::StrCat("unix:", options.uds));
  return absl::StrJoin(places, " and ");
}

void DeclareHttpServer(HttpServerOptions* options, Settings* settings) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const absl::Duration min = absl::Milliseconds(10), day = absl::Hours(24);
  settings->Text("server.host", &options->host, "address or name that the HTTP API binds");
  settings->Int("server.port", &options->port, -1, 65535,
                "port of the HTTP API; 0 picks one, -1 = none, only server.uds");
  settings->Text("server.uds", &options->uds,
                 "path of a Unix socket that serves the HTTP API too, without TLS; empty = none");
  settings->Choice<int>("server.uds_mode", &options->uds_mode,
                        {{"0600", 0600}, {"0660", 0660}, {"0666", 0666}},
                        "who may connect to server.uds: the user, its group too, everybody");
  settings->Text("server.tls_cert", &options->tls.cert,
                 "PEM file of the server's certificate and those above it; empty = no TLS");
  settings->Text("server.tls_key", &options->tls.key,
                 "PEM file of the certificate's key, not open to everybody");
  settings->Text("server.tls_client_ca", &options->tls.client_ca,
                 "PEM file of the authorities of which clients must have a certificate; empty = "
                 "they need none");
  settings->Int("server.max_handshakes", &options->max_handshakes, 1, 100000,
                "TLS handshakes under way; one more makes the oldest end");
  settings->Duration("server.handshake_timeout", &options->handshake_timeout, min, day,
                     "for a whole TLS handshake");
  settings->Bytes("server.max_header", &options->limits.max_header, 1024, kMiB,
                  "bytes of a header block");
  settings->Bytes("server.max_body", &options->limits.max_body, 0, 1024 * kMiB,
                  "bytes of a body; 0 = min(64MiB, 32 B x context), at least 1MiB");
  settings->Int("server.max_connections", &options->max_connections, 1, 1000000,
                "open connections; for one more the idlest is closed, or the new one refused with "
                "503; at most what the limit of descriptors allows");
  settings->Int("server.max_connections_per_address", &options->max_per_address, 0, 1000000,
                "open connections of one address (of IPv6: a /64); more are refused with 503; 0 = "
                "half of server.max_connections");
  settings->Int("server.max_connections_per_key", &options->max_per_key, 0, 1000000,
                "open connections of one API key, by the last request of each; for one more its "
                "idlest is closed, or the new one refused with 429; 0 = half of "
                "server.max_connections");
  settings->Duration("server.header_timeout", &options->header_timeout, min, day,
                     "for a whole header block");
  settings->Duration("server.body_timeout", &options->body_timeout, min, day,
                     "in which a body brings less than 1 KiB/s on average");
  settings->Duration("server.idle_timeout", &options->idle_timeout, min, day,
                     "of an idle connection after a request");
  settings->Duration("server.write_timeout", &options->write_timeout, min, day,
                     "in which a client must take server.min_write_rate of what waits for it");
  settings->Bytes("server.min_write_rate", &options->min_write_rate, 0, kMiB,
                  "bytes per second that a client must take of a response; 0 = any byte will do");
  settings->Choice<bool>("server.half_close", &options->finish_half_closed,
                         {{"cancel", false}, {"finish", true}},
                         "what a client that closes its sending side wants");
  settings->Bytes("server.max_unsent", &options->max_unsent, 4096, 1024 * kMiB,
                  "response bytes a slow client may leave unread before it is cancelled");
  settings->Bytes(
      "server.max_unsent_total", &options->max_unsent_total, 4096, 65536 * kMiB,
      "memory of responses that clients leave unread; beyond, the slowest is cancelled");
  settings->Bytes("server.max_unsent_per_address", &options->max_unsent_per_address, 4096,
                  65536 * kMiB, "the same of the clients of one address (of IPv6: a /64)");
  settings->Number("server.loop_share_per_address", &options->loop_share_per_address, 0.01, 1,
                   "share of the HTTP thread's time for what the clients of one address send, "
                   "beyond 5 ms at once: the rest of it waits; 1 = all");
  settings->Bytes("server.max_incoming", &options->max_incoming, 4096, 65536 * kMiB,
                  "bytes of requests that are not whole yet, or one of the largest size; who sends "
                  "more gets 503");
  settings->Bytes("server.max_incoming_per_address", &options->max_incoming_per_address, 4096,
                  65536 * kMiB, "the same of one address (of IPv6: a /64)");
}

}  // namespace baton
