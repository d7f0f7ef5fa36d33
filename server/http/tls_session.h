// TLS of one connection, on a socket that does not block: the handshake, then bytes. Over OpenSSL,
// whose types stay in tls_*.cc. The process ignores SIGPIPE. Loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

struct ssl_st;

namespace baton {

class TlsContext;

// How a handshake ends. Names: NameOf.
enum class TlsResult {
  kOk,
  kTimeout,                   // not done by the deadline
  kCrowded,                   // the oldest of too many
  kPlainHttp,                 // no TLS but HTTP
  kNotTls,                    // neither
  kOldVersion,                // nothing from TLS 1.2 on
  kNoHttp11,                  // ALPN without http/1.1
  kClientCertificateMissing,  // with --tls-client-ca
  kClientCertificateExpired,  // or not valid yet
  kClientCertificateForeign,  // not of the client CA, or otherwise wrong
  kRefusedByClient,           // the client sent an alert: it does not trust the certificate
  kGone,                      // the client has closed
  kBroken,                    // anything else
};
inline constexpr size_t kTlsResults = 13;
std::string_view NameOf(TlsResult result);  // "client_certificate_missing"

class TlsSession {
 public:
  enum class Progress { kDone, kWantsInput, kWantsRoom, kEnded, kFailed };

  // The session keeps the context, which later ones need not share.
  TlsSession(std::shared_ptr<const TlsContext> context, int socket);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  Progress Handshake();
  TlsResult failure() const { return failure_; }  // after kFailed of Handshake

  // kDone: *n bytes were read. kEnded: the other side has ended; whether it said so or just closed
  // is the same, as HTTP itself says where a message ends.
  Progress Read(std::span<char> buffer, size_t* n);
  // kDone: the first *n bytes were taken. kWantsRoom: to be called again with the same bytes.
  Progress Write(std::string_view bytes, size_t* n);
  Progress End();  // says that nothing more comes; kDone when that is out

  int64_t n_written() const;  // bytes on the wire

 private:
  Progress After(int result);

  std::shared_ptr<const TlsContext> context_;
  ssl_st* ssl_;
  TlsResult failure_ = TlsResult::kBroken;
  bool is_broken_ = false;  // OpenSSL forbids further calls
};

}  // namespace baton
