#include "proto/cluster_certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/certificate_dates.h"
#include "common/check.h"
#include "common/log.h"
#include "common/secret_file.h"

namespace baton {
namespace {

constexpr char kScheme[] = "baton://";
constexpr size_t kMaxClusterName = 64, kMaxPem = 1 << 20;

template <auto Free>
struct Freed {
  void operator()(auto* object) const { Free(object); }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

// The owner of a certificate, as the certificate names it.
struct Owner {
  std::string cluster, role;
};

absl::Status Wrong(const char* setting, const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(setting, ": ", path, " ", what));
}

absl::StatusOr<std::string> ReadPem(const char* setting, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Wrong(setting, path,
                 absl::StrCat("cannot be read (", std::strerror(errno),
                              "): give the path of a PEM file that this user may read"));
  std::string text(kMaxPem, '\0');
  file.read(text.data(), kMaxPem);
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

absl::StatusOr<std::string> ReadKey(const std::string& path) {
  absl::StatusOr<std::string> text = ReadSecretFile(path, kMaxPem);
  if (text.ok()) return text;
  return absl::InvalidArgumentError(absl::StrCat("cluster.tls_key: ", text.status().message()));
}

Bio Text(std::string_view pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

std::vector<Certificate> ParseCertificates(std::string_view pem) {
  std::vector<Certificate> certificates;
  const Bio in = Text(pem);
  while (X509* next = PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr))
    certificates.emplace_back(next);
  ERR_clear_error();
  return certificates;
}

// Every certificate of the text was read.
absl::Status CheckWhole(const char* setting, const std::string& path, std::string_view pem,
                        size_t n_read) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
  size_t n_begun = 0;
  for (size_t at = pem.find(kBegin); at != std::string_view::npos; at = pem.find(kBegin, at + 1))
    ++n_begun;
  if (n_begun <= n_read) return absl::OkStatus();
  return Wrong(setting, path, "has a damaged certificate: write the whole file anew");
}

std::string SubjectOf(const X509* certificate) {
  char subject[200] = {};
  X509_NAME_oneline(X509_get_subject_name(certificate), subject, sizeof subject);
  return subject;
}

bool IsClusterName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxClusterName &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

absl::StatusOr<Owner> ParseOwner(std::string_view uri) {
  const std::vector<std::string> parts =
      absl::StrSplit(std::string(uri.substr(sizeof kScheme - 1)), '/');
  static constexpr std::string_view kRoles[] = {kRouterRole, "prefill", "decode", "both"};
  if (parts.size() == 2 && IsClusterName(parts[0]) &&
      std::find(std::begin(kRoles), std::end(kRoles), parts[1]) != std::end(kRoles))
    return Owner{parts[0], parts[1]};
  return absl::InvalidArgumentError(
      "has an alternative name baton:// that is not baton://CLUSTER/ROLE, ROLE being router, "
      "prefill, decode or both");
}

absl::StatusOr<Owner> OwnerOf(const X509* certificate) {
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  std::vector<std::string> uris;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
    if (!uris.back().starts_with(kScheme)) uris.pop_back();
  }
  GENERAL_NAMES_free(names);
  if (uris.size() == 1) return ParseOwner(uris[0]);
  return absl::InvalidArgumentError(
      absl::StrCat("has ", uris.size(),
                   " alternative names baton://CLUSTER/ROLE, and must have one: make it with "
                   "subjectAltName=URI:baton://CLUSTER/ROLE"));
}

// Verifies the first certificate, with the others between it and an authority.
int Verify(X509_STORE* authorities, const std::vector<Certificate>& chain, bool of_router) {
  STACK_OF(X509)* between = sk_X509_new_null();
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(between, chain[i].get());
  X509_STORE_CTX* context = X509_STORE_CTX_new();
  int error = X509_V_ERR_UNSPECIFIED;
  if (X509_STORE_CTX_init(context, authorities, chain[0].get(), between) == 1) {
    X509_STORE_CTX_set_default(context, of_router ? "ssl_server" : "ssl_client");
    // An authority of the file is trusted whether or not it is a root.
    X509_STORE_CTX_set_flags(context, X509_V_FLAG_PARTIAL_CHAIN);
    const bool ok = X509_verify_cert(context) == 1;
    error = X509_STORE_CTX_get_error(context);
    if (!ok && error == X509_V_OK) error = X509_V_ERR_UNSPECIFIED;
  }
  X509_STORE_CTX_free(context);
  sk_X509_free(between);
  ERR_clear_error();
  return error;
}

absl::Status CheckAllGiven(const ClusterTlsFiles& files) {
  const std::pair<const char*, const std::string*> settings[] = {{"cluster.tls_cert", &files.cert},
                                                                 {"cluster.tls_key", &files.key},
                                                                 {"cluster.tls_ca", &files.ca}};
  for (const auto& [setting, path] : settings)
    if (path->empty())
      return absl::InvalidArgumentError(
          absl::StrCat(setting,
                       " is not set: mutual TLS of a cluster needs cluster.tls_cert, "
                       "cluster.tls_key and cluster.tls_ca together"));
  return absl::OkStatus();
}

absl::Status CheckKey(const ClusterTlsFiles& files, const X509* certificate,
                      const std::string& pem) {
  const Bio in = Text(pem);
  // Without this function OpenSSL asks for a passphrase on the terminal.
  const auto no_passphrase = [](char*, int, int, void*) { return 0; };
  const Key key(PEM_read_bio_PrivateKey(in.get(), nullptr, no_passphrase, nullptr));
  const bool fits = key != nullptr && X509_check_private_key(certificate, key.get()) == 1;
  ERR_clear_error();
  if (key == nullptr)
    return Wrong("cluster.tls_key", files.key,
                 "is not taken: it must be a private key in PEM without a passphrase");
  if (!fits)
    return Wrong("cluster.tls_key", files.key,
                 absl::StrCat("is the key of another certificate than ", files.cert,
                              ": give the two that belong together"));
  return absl::OkStatus();
}

}  // namespace

const char* RoleName(Role role) {
  switch (role) {
    case Role::kPrefill:
      return "prefill";
    case Role::kDecode:
      return "decode";
    case Role::kBoth:
      return "both";
  }
  return "none";
}

ClusterCertificate::ClusterCertificate(const ClusterTlsFiles& files, std::string role)
    : files_(files), role_(std::move(role)), authorities_(X509_STORE_new()) {
  BATON_CHECK(authorities_ != nullptr);
}

ClusterCertificate::~ClusterCertificate() { X509_STORE_free(authorities_); }

absl::StatusOr<std::shared_ptr<const ClusterCertificate>> ClusterCertificate::Load(
    const ClusterTlsFiles& files, const std::string& role) {
  RETURN_IF_ERROR(CheckAllGiven(files));
  std::shared_ptr<ClusterCertificate> loaded(new ClusterCertificate(files, role));
  RETURN_IF_ERROR(loaded->Read());
  return loaded;
}

absl::Status ClusterCertificate::Read() {
  ASSIGN_OR_RETURN(chain_, ReadPem("cluster.tls_cert", files_.cert));
  ASSIGN_OR_RETURN(key_, ReadKey(files_.key));
  ASSIGN_OR_RETURN(const std::string ca, ReadPem("cluster.tls_ca", files_.ca));
  const std::vector<Certificate> own = ParseCertificates(chain_), signers = ParseCertificates(ca);
  if (own.empty())
    return Wrong("cluster.tls_cert", files_.cert,
                 "has no certificate: it must be PEM, the process's own certificate first");
  if (signers.empty())
    return Wrong("cluster.tls_ca", files_.ca,
                 "has no certificate: give the PEM file of the authority that signs the cluster's");
  RETURN_IF_ERROR(CheckWhole("cluster.tls_cert", files_.cert, chain_, own.size()));
  RETURN_IF_ERROR(CheckWhole("cluster.tls_ca", files_.ca, ca, signers.size()));
  for (const Certificate& signer : signers) X509_STORE_add_cert(authorities_, signer.get());
  expiry_ = ExpiryOf(own[0].get());
  RETURN_IF_ERROR(CheckDates("cluster.tls_cert", files_.cert, own[0].get(), absl::Now()));
  RETURN_IF_ERROR(CheckKey(files_, own[0].get(), key_));
  const absl::StatusOr<Owner> owner = OwnerOf(own[0].get());
  if (!owner.ok())
    return Wrong("cluster.tls_cert", files_.cert, std::string(owner.status().message()));
  if (owner->role != role_)
    return Wrong("cluster.tls_cert", files_.cert,
                 absl::StrCat("is for the role ", owner->role, ", and this process is ", role_,
                              ": give it a certificate for baton://", owner->cluster, "/", role_));
  cluster_ = owner->cluster;
  if (const int error = Verify(authorities_, own, role_ == kRouterRole); error != X509_V_OK)
    return Wrong(
        "cluster.tls_ca", files_.ca,
        absl::StrCat("has not signed ", files_.cert, " (", X509_verify_cert_error_string(error),
                     "): all processes of a cluster need certificates of these "
                     "authorities"));
  return absl::OkStatus();
}

void ClusterCertificate::WarnOfExpiry() const {
  baton::WarnOfExpiry(files_.cert, expiry_, expiry_ - absl::Now());
}

absl::StatusOr<std::string> ClusterCertificate::RoleOfPeer(std::string_view pem,
                                                           JoinFault* fault) const {
  const auto refused = [fault](JoinFault what, const std::string& why) {
    *fault = what;
    return absl::UnauthenticatedError(why);
  };
  const std::vector<Certificate> chain = ParseCertificates(pem);
  if (chain.empty())
    return refused(JoinFault::kNoCertificate,
                   "the peer has no certificate: set cluster.tls_cert, tls_key and tls_ca there");
  const std::string name =
      absl::StrCat("the peer's certificate (", SubjectOf(chain[0].get()), ") ");
  const bool expects_router = role_ != kRouterRole;
  const int error = Verify(authorities_, chain, expects_router);
  if (error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID)
    return refused(JoinFault::kExpiredCertificate,
                   absl::StrCat(name, "has expired or is not valid yet: renew it"));
  if (error != X509_V_OK)
    return refused(JoinFault::kForeignCertificate,
                   absl::StrCat(name, "is not of an authority in cluster.tls_ca (",
                                X509_verify_cert_error_string(error), ")"));
  const absl::StatusOr<Owner> owner = OwnerOf(chain[0].get());
  if (!owner.ok())
    return refused(JoinFault::kNoRole, absl::StrCat(name, std::string(owner.status().message())));
  if (owner->cluster != cluster_)
    return refused(JoinFault::kOtherCluster,
                   absl::StrCat(name, "is of the cluster ", owner->cluster, ", not ", cluster_));
  if ((owner->role == kRouterRole) != expects_router)
    return refused(JoinFault::kOtherRole,
                   absl::StrCat(name, "is for the role ", owner->role, ", where a ",
                                expects_router ? "router" : "worker", " is expected"));
  return owner->role;
}

}  // namespace baton
