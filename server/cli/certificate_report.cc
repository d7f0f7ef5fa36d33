#include "server/cli/certificate_report.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/certificate_dates.h"

namespace baton {
namespace {

struct Freed {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};

Finding Inspect(const CertificateFile& file, absl::Time now) {
  const std::unique_ptr<BIO, Freed> in(BIO_new_file(file.path.c_str(), "r"));
  absl::Time first = absl::InfiniteFuture();
  int n = 0;
  while (in != nullptr) {
    const std::unique_ptr<X509, Freed> next(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
    if (next == nullptr) break;
    ++n;
    const absl::Status dates = CheckDates(file.setting, file.path, next.get(), now);
    if (!dates.ok()) return Bad("certificate", std::string(dates.message()));
    first = std::min(first, ExpiryOf(next.get()));
  }
  ERR_clear_error();
  if (n == 0) {
    return Bad("certificate",
               absl::StrCat(file.setting, ": ", file.path,
                            in == nullptr ? " cannot be read" : " has no certificate",
                            "; give a readable PEM file"));
  }
  const std::string text =
      absl::StrFormat("%s: %s ends on %s, in %d days", file.setting, file.path, DateText(first),
                      static_cast<int64_t>((first - now) / absl::Hours(24)));
  if (first - now >= kExpiryWarning) return Good("certificate", text);
  return Note("certificate",
              text + "; put a new one in its place, which is read without a restart");
}

}  // namespace

std::vector<Finding> InspectCertificates(const std::vector<CertificateFile>& files,
                                         absl::Time now) {
  std::vector<Finding> findings;
  for (const CertificateFile& file : files)
    if (!file.path.empty()) findings.push_back(Inspect(file, now));
  return findings;
}

}  // namespace baton
