#include "server/http/tls_session.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/check.h"
#include "server/http/tls_context.h"

namespace baton {
namespace {

constexpr size_t kMaxWrite = 64 << 10;  // bytes per call: other connections want their turn

TlsResult FailureOf(const SSL* ssl, int reason, bool has_error) {
  if (!has_error) return TlsResult::kGone;
  switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return TlsResult::kClientCertificateMissing;
    case SSL_R_CERTIFICATE_VERIFY_FAILED: {
      const long why = SSL_get_verify_result(ssl);
      return why == X509_V_ERR_CERT_HAS_EXPIRED || why == X509_V_ERR_CERT_NOT_YET_VALID
                 ? TlsResult::kClientCertificateExpired
                 : TlsResult::kClientCertificateForeign;
    }
    case SSL_R_NO_APPLICATION_PROTOCOL:
      return TlsResult::kNoHttp11;
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_WRONG_SSL_VERSION:
      return TlsResult::kOldVersion;
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return TlsResult::kGone;
    default:
      // Alerts of the other side are 1000 + their number.
      return reason > SSL_AD_REASON_OFFSET ? TlsResult::kRefusedByClient : TlsResult::kBroken;
  }
}

}  // namespace

std::string_view NameOf(TlsResult result) {
  constexpr std::string_view kNames[kTlsResults] = {"ok",
                                                    "timeout",
                                                    "crowded",
                                                    "plain_http",
                                                    "not_tls",
                                                    "old_version",
                                                    "no_http_1_1",
                                                    "client_certificate_missing",
                                                    "client_certificate_expired",
                                                    "client_certificate_foreign",
                                                    "refused_by_client",
                                                    "gone",
                                                    "broken"};
  return kNames[static_cast<size_t>(result)];
}

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, int socket)
    : context_(std::move(context)), ssl_(SSL_new(context_->get())) {
  BATON_CHECK(ssl_ != nullptr && SSL_set_fd(ssl_, socket) == 1);
  SSL_set_accept_state(ssl_);
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

TlsSession::Progress TlsSession::After(int result) {
  const int error = SSL_get_error(ssl_, result);
  if (error == SSL_ERROR_WANT_READ) return Progress::kWantsInput;
  if (error == SSL_ERROR_WANT_WRITE) return Progress::kWantsRoom;
  if (error == SSL_ERROR_ZERO_RETURN) return Progress::kEnded;
  const unsigned long first = ERR_peek_error();
  failure_ = FailureOf(ssl_, ERR_GET_REASON(first), first != 0);
  is_broken_ = true;
  return Progress::kFailed;
}

TlsSession::Progress TlsSession::Handshake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  if (result == 1) return Progress::kDone;
  const Progress progress = After(result);
  if (progress != Progress::kEnded) return progress;
  failure_ = TlsResult::kGone;
  return Progress::kFailed;
}

TlsSession::Progress TlsSession::Read(std::span<char> buffer, size_t* n) {
  if (is_broken_) return Progress::kFailed;
  ERR_clear_error();
  const int result = SSL_read_ex(ssl_, buffer.data(), buffer.size(), n);
  return result == 1 ? Progress::kDone : After(result);
}

TlsSession::Progress TlsSession::Write(std::string_view bytes, size_t* n) {
  *n = 0;
  if (is_broken_) return Progress::kFailed;
  while (!bytes.empty() && *n < kMaxWrite) {
    size_t taken = 0;
    ERR_clear_error();
    const int result = SSL_write_ex(ssl_, bytes.data(), std::min(bytes.size(), kMaxWrite), &taken);
    if (result != 1) {
      const Progress progress = After(result);
      return *n > 0 && progress == Progress::kWantsRoom ? Progress::kDone : progress;
    }
    *n += taken;
    bytes.remove_prefix(taken);
  }
  return Progress::kDone;
}

TlsSession::Progress TlsSession::End() {
  if (is_broken_) return Progress::kFailed;
  ERR_clear_error();
  const int result = SSL_shutdown(ssl_);
  return result >= 0 ? Progress::kDone : After(result);
}

int64_t TlsSession::n_written() const {
  return static_cast<int64_t>(BIO_number_written(SSL_get_wbio(ssl_)));
}

}  // namespace baton
