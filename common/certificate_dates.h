// When a certificate is valid, for all who read one from a file. Pure functions but for the log;
// any thread.
#pragma once

#include <openssl/types.h>

#include <string>

#include "absl/time/time.h"
#include "common/status.h"

namespace baton {

absl::Time ExpiryOf(const X509* certificate);
std::string DateText(absl::Time time);  // for people: 2026-01-31 12:00 UTC
// InvalidArgument: the certificate of this file, given by this setting, is not valid now.
absl::Status CheckDates(const std::string& setting, const std::string& path,
                        const X509* certificate, absl::Time now);
// Writes a line to the log if so little is left of the certificate of this file.
inline constexpr absl::Duration kExpiryWarning = absl::Hours(24 * 14);
void WarnOfExpiry(const std::string& path, absl::Time expiry, absl::Duration left);

}  // namespace baton
