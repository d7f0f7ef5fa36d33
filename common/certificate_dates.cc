#include "common/certificate_dates.h"

#include <openssl/x509.h>

#include <ctime>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace baton {
namespace {

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

}  // namespace

absl::Time ExpiryOf(const X509* certificate) { return TimeOf(X509_get0_notAfter(certificate)); }

std::string DateText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

absl::Status CheckDates(const std::string& setting, const std::string& path,
                        const X509* certificate, absl::Time now) {
  const absl::Time begin = TimeOf(X509_get0_notBefore(certificate)), end = ExpiryOf(certificate);
  if (now >= end)
    return absl::InvalidArgumentError(
        absl::StrCat(setting, ": ", path, " expired on ", DateText(end), ": renew it"));
  if (now < begin)
    return absl::InvalidArgumentError(absl::StrCat(setting, ": ", path, " is not valid before ",
                                                   DateText(begin), ": wait, or set the clock"));
  return absl::OkStatus();
}

void WarnOfExpiry(const std::string& path, absl::Time expiry, absl::Duration left) {
  if (left < kExpiryWarning)
    LogWarn("certificate %s expires on %s: renew it", path, DateText(expiry));
}

}  // namespace baton
