// The certificate by which processes on several hosts know each other on the control wire, its key,
// and the authorities that sign such certificates. It names cluster and role as a URI among its
// alternative names: baton://CLUSTER/ROLE, where ROLE is router, prefill, decode or both; names of
// hosts do not matter. Immutable: new files make a new object. Any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/status.h"
#include "proto/join_fault.h"
#include "proto/messages.h"

struct x509_store_st;

namespace baton {

// Paths of PEM files: the process's own certificate and those between it and an authority, its key,
// the authorities (cluster.tls_cert, tls_key, tls_ca).
struct ClusterTlsFiles {
  std::string cert, key, ca;
  bool any() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

inline constexpr char kRouterRole[] = "router";
const char* RoleName(Role role);  // as a worker's certificate has it

class ClusterCertificate {
 public:
  // role: of this process. InvalidArgument: a file is missing, unreadable, no PEM, expired, or does
  // not fit the others; the certificate is another role's; or anyone may read the key. The error
  // names setting and file, and says what to change.
  static absl::StatusOr<std::shared_ptr<const ClusterCertificate>> Load(
      const ClusterTlsFiles& files, const std::string& role);
  // Returns what the files are now. Errors of Load.
  absl::StatusOr<std::shared_ptr<const ClusterCertificate>> Reload() const {
    return Load(files_, role_);
  }
  ~ClusterCertificate();
  ClusterCertificate(const ClusterCertificate&) = delete;
  ClusterCertificate& operator=(const ClusterCertificate&) = delete;

  const ClusterTlsFiles& files() const { return files_; }
  const std::string& chain() const { return chain_; }  // PEM
  const std::string& key() const { return key_; }      // PEM
  absl::Time expiry() const { return expiry_; }        // of the certificate, by the date
  void WarnOfExpiry() const;                           // a line in the log in its last 14 days

  // Checks the certificates that a peer sent, in PEM and its own first: one of our authorities
  // signed it, it is valid now, it names our cluster, and a worker if this is the router, else the
  // router. Returns its role. Unauthenticated names the certificate; *fault says what is wrong.
  absl::StatusOr<std::string> RoleOfPeer(std::string_view pem, JoinFault* fault) const;

 private:
  ClusterCertificate(const ClusterTlsFiles& files, std::string role);
  absl::Status Read();

  const ClusterTlsFiles files_;
  const std::string role_;
  std::string chain_, key_, cluster_;
  absl::Time expiry_;
  x509_store_st* const authorities_;
};

}  // namespace baton
