// When the certificates of the settings end, for `baton doctor`. Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/cli/finding.h"

namespace baton {

struct CertificateFile {
  std::string setting;  // server.tls_cert, ...
  std::string path;     // PEM; empty: not set
};

// A finding for each file that is set: of its certificate that ends first. Bad: the file cannot be
// read, has none, or one that is not valid at `now`.
std::vector<Finding> InspectCertificates(const std::vector<CertificateFile>& files, absl::Time now);

}  // namespace baton
