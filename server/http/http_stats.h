// Counts of an HttpServer since its start, and how it stands now. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "server/http/tls_session.h"
#include "server/http/transport.h"

namespace baton {

struct HttpStats {
  // Connections by TransportKind, TLS ones after their handshake.
  std::array<int64_t, kTransportKinds> opened{};
  int64_t open = 0;                  // now
  int64_t refused = 0;               // the server, the address or the key had too many
  int64_t idle_closed = 0;           // idle ones, given up for new ones
  int64_t too_slow = 0;              // clients that took their answers too slowly
  int64_t incoming = 0, unsent = 0;  // bytes of requests that come and answers that wait, now
  int64_t incoming_refused = 0;      // requests refused with 503: too many bytes were coming
  int64_t unread_closed = 0;         // clients given up: too many bytes waited for all
  std::array<int64_t, kTlsResults> handshakes{};
  int64_t shaking = 0;                             // handshakes under way, now
  int64_t reloads = 0, reloads_refused = 0;        // of certificate and key
  std::optional<absl::Duration> certificate_left;  // until it expires; nothing: no TLS
};

}  // namespace baton
