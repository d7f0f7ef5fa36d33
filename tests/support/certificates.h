// Certificates of a test: an authority made on the spot, and what it signs. Keys are of P-256, so
// making one takes a millisecond. PEM texts.
#pragma once

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "tests/support/temp_folder.h"

namespace baton {

struct TestCertificate {
  std::string certificate, key;  // PEM

  // Writes NAME.pem and NAME.key, the key as only the user may read it.
  void WriteTo(const TempFolder& folder, const std::string& name) const {
    folder.Write(name + ".pem", certificate);
    folder.Write(name + ".key", key);
    REQUIRE(::chmod(folder.file(name + ".key").c_str(), 0600) == 0);
  }
};

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name) : name_(name), key_(EVP_EC_gen("P-256")) {
    certificate_ = Sign(name_, key_, absl::Hours(-1), absl::Hours(24 * 365), "CA:TRUE", "");
  }
  ~TestAuthority() {
    X509_free(certificate_);
    EVP_PKEY_free(key_);
  }
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  std::string pem() const { return Pem(certificate_); }
  X509* certificate() const { return certificate_; }

  // Valid from `begin` to `end`, of now; for localhost, 127.0.0.1 and what `more` names
  // ("URI:baton://blue/router").
  TestCertificate Issue(const std::string& name, absl::Duration begin = absl::Hours(-1),
                        absl::Duration end = absl::Hours(24 * 90), const std::string& more = "") {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = Sign(name, key, begin, end, "CA:FALSE",
                             "DNS:localhost,IP:127.0.0.1" + (more.empty() ? "" : "," + more));
    BIO* out = BIO_new(BIO_s_mem());
    REQUIRE(PEM_write_bio_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
    TestCertificate issued{Pem(certificate), Text(out)};
    X509_free(certificate);
    EVP_PKEY_free(key);
    return issued;
  }

 private:
  static std::string Text(BIO* out) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(out, &data);
    std::string text(data, static_cast<size_t>(size));
    BIO_free(out);
    return text;
  }
  static std::string Pem(X509* certificate) {
    BIO* out = BIO_new(BIO_s_mem());
    REQUIRE(PEM_write_bio_X509(out, certificate) == 1);
    return Text(out);
  }
  void Extend(X509* certificate, int what, const std::string& value) const {
    X509V3_CTX context;
    X509V3_set_ctx(&context, certificate_ == nullptr ? certificate : certificate_, certificate,
                   nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str());
    REQUIRE(extension != nullptr);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  X509* Sign(const std::string& name, EVP_PKEY* key, absl::Duration begin, absl::Duration end,
             const std::string& constraints, const std::string& names) {
    X509* certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(certificate), absl::ToInt64Seconds(begin));
    X509_gmtime_adj(X509_getm_notAfter(certificate), absl::ToInt64Seconds(end));
    X509_set_pubkey(certificate, key);
    const auto add = [](X509_NAME* to, const std::string& text) {
      X509_NAME_add_entry_by_txt(to, "CN", MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>(text.c_str()), -1, -1, 0);
    };
    add(X509_get_subject_name(certificate), name);
    X509_NAME* issuer = X509_NAME_new();
    add(issuer, name_);
    X509_set_issuer_name(certificate, issuer);
    X509_NAME_free(issuer);
    Extend(certificate, NID_basic_constraints, constraints);
    Extend(certificate, NID_subject_key_identifier, "hash");
    if (certificate_ != nullptr) Extend(certificate, NID_authority_key_identifier, "keyid:always");
    if (!names.empty()) Extend(certificate, NID_subject_alt_name, names);
    REQUIRE(X509_sign(certificate, key_, EVP_sha256()) > 0);
    return certificate;
  }

  const std::string name_;
  EVP_PKEY* key_;
  X509* certificate_ = nullptr;
  long serial_ = 0;
};

}  // namespace baton
