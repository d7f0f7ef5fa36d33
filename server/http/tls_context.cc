#include "server/http/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/certificate_dates.h"
#include "common/check.h"
#include "common/secret_file.h"

namespace baton {
namespace {

// Ciphers of TLS 1.2 with forward secrecy whose records cannot be changed unseen. TLS 1.3 has no
// others.
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
constexpr unsigned char kSessionId[] = "baton";
constexpr size_t kMaxKeyBytes = 1 << 20;
constexpr long kSessionSeconds = 3600;  // in which a client may resume

std::string WhyOf(unsigned long error) {
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "unknown error" : reason;
}

absl::Status Wrong(const char* setting, const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(setting, ": ", path, " ", what));
}

absl::Status CheckReadable(const char* setting, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr)
    return Wrong(setting, path,
                 absl::StrCat("cannot be read (", std::strerror(errno),
                              "): give the path of a PEM file that this user may read"));
  std::fclose(file);
  return absl::OkStatus();
}

absl::Status CheckAllGiven(const TlsFiles& files) {
  if (!files.cert.empty() && !files.key.empty()) return absl::OkStatus();
  if (files.cert.empty() && files.key.empty())
    return absl::InvalidArgumentError(
        "server.tls_client_ca is set, but TLS is not on: set server.tls_cert and server.tls_key "
        "too");
  return absl::InvalidArgumentError(
      files.key.empty()
          ? absl::StrCat("server.tls_cert is set (", files.cert,
                         ") and server.tls_key is not: set it to the file of the certificate's key")
          : absl::StrCat(
                "server.tls_key is set (", files.key,
                ") and server.tls_cert is not: set it to the file of the key's certificate"));
}

absl::Status UseCertificate(SSL_CTX* context, const std::string& path, absl::Time* expiry) {
  RETURN_IF_ERROR(CheckReadable("server.tls_cert", path));
  if (SSL_CTX_use_certificate_chain_file(context, path.c_str()) != 1)
    return Wrong("server.tls_cert", path,
                 absl::StrCat("is not taken (", WhyOf(ERR_peek_error()),
                              "): it must be PEM, the server's certificate first"));
  const X509* certificate = SSL_CTX_get0_certificate(context);
  *expiry = ExpiryOf(certificate);
  return CheckDates("server.tls_cert", path, certificate, absl::Now());
}

// Without this OpenSSL asks for a passphrase on the terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

absl::Status UseKey(SSL_CTX* context, const TlsFiles& files) {
  ASSIGN_OR_RETURN(const std::string text, ReadTlsKey(files.key));
  const std::unique_ptr<BIO, decltype(&BIO_free)> bytes(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(bytes.get(), nullptr, NoPassphrase, nullptr), EVP_PKEY_free);
  if (key != nullptr && SSL_CTX_use_PrivateKey(context, key.get()) == 1) return absl::OkStatus();
  const unsigned long error = ERR_peek_last_error();
  if (ERR_GET_LIB(error) == ERR_LIB_X509 && (ERR_GET_REASON(error) == X509_R_KEY_VALUES_MISMATCH ||
                                             ERR_GET_REASON(error) == X509_R_KEY_TYPE_MISMATCH))
    return Wrong("server.tls_key", files.key,
                 absl::StrCat("is the key of another certificate than ", files.cert,
                              ": give the two that belong together"));
  return Wrong("server.tls_key", files.key,
               absl::StrCat("is not taken (", WhyOf(error),
                            "): it must be a private key in PEM without a passphrase"));
}

absl::Status UseClientCa(SSL_CTX* context, const std::string& path) {
  RETURN_IF_ERROR(CheckReadable("server.tls_client_ca", path));
  STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(path.c_str());
  if (names == nullptr || SSL_CTX_load_verify_file(context, path.c_str()) != 1) {
    sk_X509_NAME_pop_free(names, X509_NAME_free);
    return Wrong("server.tls_client_ca", path,
                 absl::StrCat("has no certificate (", WhyOf(ERR_peek_error()),
                              "): give the PEM file of the authority that signs clients"));
  }
  SSL_CTX_set_client_CA_list(context, names);
  // An authority of the file is trusted whether or not it is a root.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return absl::OkStatus();
}

// A client that speaks only other protocols gets an alert; one without ALPN speaks HTTP/1.1.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size,
                   const unsigned char* offered, unsigned int offered_size, void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1\x08http/1.0";
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, chosen_size, kOurs, sizeof kOurs - 1, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

void SetDefaults(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  BATON_CHECK(SSL_CTX_set_cipher_list(context, kCiphers) == 1);
  SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA |
                                   SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                   SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Tickets carry sessions, so that nothing of them is kept here. Each context has keys of its own:
  // after a reload clients shake hands anew.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_session_id_context(context, kSessionId, sizeof kSessionId - 1);
  SSL_CTX_set_timeout(context, kSessionSeconds);
  SSL_CTX_set_num_tickets(context, 1);
  SSL_CTX_set_alpn_select_cb(context, ChooseProtocol, nullptr);
  SSL_CTX_set_default_passwd_cb(context, NoPassphrase);
}

}  // namespace

std::vector<std::string> TlsFiles::paths() const {
  std::vector<std::string> paths = {cert, key};
  if (!client_ca.empty()) paths.push_back(client_ca);
  return paths;
}

absl::StatusOr<std::string> ReadTlsKey(const std::string& path) {
  absl::StatusOr<std::string> text = ReadSecretFile(path, kMaxKeyBytes);
  if (text.ok()) return text;
  return absl::InvalidArgumentError(absl::StrCat("server.tls_key: ", text.status().message()));
}

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Load(const TlsFiles& files) {
  RETURN_IF_ERROR(CheckAllGiven(files));
  ERR_clear_error();
  std::shared_ptr<TlsContext> context(new TlsContext(SSL_CTX_new(TLS_server_method())));
  BATON_CHECK(context->get() != nullptr);
  SetDefaults(context->get());
  RETURN_IF_ERROR(UseCertificate(context->get(), files.cert, &context->expiry_));
  RETURN_IF_ERROR(UseKey(context->get(), files));
  if (!files.client_ca.empty()) RETURN_IF_ERROR(UseClientCa(context->get(), files.client_ca));
  return context;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

absl::Duration TlsContext::left() const { return expiry_ - absl::Now(); }

}  // namespace baton
