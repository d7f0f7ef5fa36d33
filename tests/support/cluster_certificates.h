// Files of a cluster with mutual TLS, made on the spot: an authority, and certificates of roles.
#pragma once

#include <memory>
#include <string>

#include "proto/cluster_certificate.h"
#include "tests/support/certificates.h"
#include "tests/support/temp_folder.h"

namespace baton {

class ClusterFiles {
 public:
  explicit ClusterFiles(const std::string& cluster = "blue") : cluster_(cluster) {
    folder_.Write("ca.pem", authority_.pem());
  }

  // Writes (again) the certificate of a role, for a cluster of another name if that is given.
  ClusterTlsFiles Write(const std::string& role, absl::Duration begin = absl::Hours(-1),
                        absl::Duration end = absl::Hours(24 * 90),
                        const std::string& cluster = "") {
    authority_
        .Issue(role, begin, end,
               "URI:baton://" + (cluster.empty() ? cluster_ : cluster) + "/" + role)
        .WriteTo(folder_, role);
    return Files(role);
  }
  ClusterTlsFiles Files(const std::string& role) const {
    return {.cert = folder_.file(role + ".pem"),
            .key = folder_.file(role + ".key"),
            .ca = folder_.file("ca.pem")};
  }
  std::shared_ptr<const ClusterCertificate> Load(const std::string& role) {
    auto loaded = ClusterCertificate::Load(Write(role), role);
    INFO(loaded.status().ToString());
    REQUIRE(loaded.ok());
    return *std::move(loaded);
  }
  const TempFolder& folder() const { return folder_; }
  TestAuthority& authority() { return authority_; }

 private:
  const std::string cluster_;
  TempFolder folder_;
  TestAuthority authority_{"authority"};
};

}  // namespace baton
