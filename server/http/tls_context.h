// The part of TLS that all connections of a server share: certificate, key, authorities of clients,
// and the choice of versions and ciphers. Immutable: new files make a new context. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/status.h"

struct ssl_ctx_st;

namespace baton {

// Paths of PEM files. cert: the server's own, then those between it and a root. client_ca: clients
// must have a certificate that one of these signed; empty: they need none.
struct TlsFiles {
  std::string cert, key, client_ca;
  bool any() const { return !cert.empty() || !key.empty() || !client_ca.empty(); }
  std::vector<std::string> paths() const;  // of those that are set, where TLS is on
};

// The text of the file of server.tls_key, which must keep the rule of common/secret_file.h.
// InvalidArgument as of Load.
absl::StatusOr<std::string> ReadTlsKey(const std::string& path);

class TlsContext {
 public:
  // InvalidArgument: a file is missing, unreadable, no PEM, expired, or does not fit the others; or
  // the key is open to others. The error names setting and file, and says what to change.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Load(const TlsFiles& files);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  absl::Time expiry() const { return expiry_; }  // of the certificate, by the date
  absl::Duration left() const;                   // until then; negative: it has expired
  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}

  ssl_ctx_st* context_;
  absl::Time expiry_;
};

}  // namespace baton
