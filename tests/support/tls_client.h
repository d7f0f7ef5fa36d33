// A RawClient over TLS, with what a test may choose of the handshake. One thread may send while
// another one reads.
#pragma once

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <catch2/catch.hpp>
#include <mutex>
#include <string>

#include "tests/support/certificates.h"
#include "tests/support/raw_client.h"

namespace baton {

struct TlsWishes {
  const TestAuthority* trusted = nullptr;        // whom the client trusts; null: everybody
  const TestCertificate* certificate = nullptr;  // the client's own
  int min_version = TLS1_2_VERSION, max_version = TLS1_3_VERSION;
  std::string alpn = "\x08http/1.1";
  std::string ciphers{};  // of TLS 1.2; empty: OpenSSL's
  SSL_SESSION* session = nullptr;
};

class TlsClient : public RawClient {
 public:
  explicit TlsClient(int port, const TlsWishes& wishes = {}) : RawClient(port) {
    context_ = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context_, wishes.min_version);
    SSL_CTX_set_max_proto_version(context_, wishes.max_version);
    if (wishes.max_version < TLS1_2_VERSION)
      SSL_CTX_set_cipher_list(context_, "DEFAULT:@SECLEVEL=0");
    if (!wishes.ciphers.empty()) SSL_CTX_set_cipher_list(context_, wishes.ciphers.c_str());
    if (wishes.trusted != nullptr) {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context_), wishes.trusted->certificate());
      SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    }
    if (wishes.certificate != nullptr) Use(*wishes.certificate);
    if (!wishes.alpn.empty())
      SSL_CTX_set_alpn_protos(context_, reinterpret_cast<const unsigned char*>(wishes.alpn.data()),
                              static_cast<unsigned>(wishes.alpn.size()));
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, socket());
    if (wishes.session != nullptr) SSL_set_session(ssl_, wishes.session);
    secured_ = SSL_connect(ssl_) == 1;
    if (!secured_) TakeError();
    ::fcntl(socket(), F_SETFL, O_NONBLOCK);
  }
  ~TlsClient() override {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }

  bool secured() const { return secured_; }            // the handshake was done, as seen from here
  const std::string& alert() const { return alert_; }  // why it was not, or reading failed
  SSL* ssl() { return ssl_; }
  std::string subject() const {  // CN of the server's certificate
    char name[256] = {};
    X509* certificate = SSL_get1_peer_certificate(ssl_);
    if (certificate == nullptr) return "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name,
                              sizeof name);
    X509_free(certificate);
    return name;
  }
  void HalfClose() override {
    {
      const std::lock_guard lock(mutex_);
      SSL_shutdown(ssl_);
    }
    RawClient::HalfClose();
  }

 protected:
  ssize_t Push(std::string_view bytes) override {
    while (true) {
      short wanted = POLLOUT;
      {
        const std::lock_guard lock(mutex_);
        ERR_clear_error();
        const int n = SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
        if (n > 0) return n;
        const int error = SSL_get_error(ssl_, n);
        if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return -1;
        if (error == SSL_ERROR_WANT_READ) wanted = POLLIN;
      }
      pollfd wait{socket(), wanted, 0};
      ::poll(&wait, 1, 100);
    }
  }
  ssize_t Pull(char* buffer, size_t size) override {
    const std::lock_guard lock(mutex_);
    ERR_clear_error();
    const int n = SSL_read(ssl_, buffer, static_cast<int>(size));
    if (n > 0) return n;
    const int error = SSL_get_error(ssl_, n);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return kNothingYet;
    if (error == SSL_ERROR_SSL) TakeError();
    return error == SSL_ERROR_ZERO_RETURN ? 0 : -1;
  }

 private:
  void Use(const TestCertificate& own) {
    BIO* in = BIO_new_mem_buf(own.certificate.data(), static_cast<int>(own.certificate.size()));
    X509* certificate = PEM_read_bio_X509(in, nullptr, nullptr, nullptr);
    BIO_free(in);
    in = BIO_new_mem_buf(own.key.data(), static_cast<int>(own.key.size()));
    EVP_PKEY* key = PEM_read_bio_PrivateKey(in, nullptr, nullptr, nullptr);
    BIO_free(in);
    SSL_CTX_use_certificate(context_, certificate);
    SSL_CTX_use_PrivateKey(context_, key);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  void TakeError() {
    if (!alert_.empty()) return;  // the first one is the reason
    const char* reason = ERR_reason_error_string(ERR_peek_error());
    alert_ = reason == nullptr ? "no alert" : reason;
  }

  std::mutex mutex_;  // guards ssl_
  SSL_CTX* context_;
  SSL* ssl_;
  bool secured_ = false;
  std::string alert_;
};

}  // namespace baton
