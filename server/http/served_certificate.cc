#include "server/http/served_certificate.h"

#include <utility>

#include "common/log.h"

namespace baton {
namespace {

std::vector<std::string> PathsOf(const TlsFiles& files) {
  std::vector<std::string> paths = {files.cert, files.key};
  if (!files.client_ca.empty()) paths.push_back(files.client_ca);
  return paths;
}

std::string DateOf(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedCertificate>> ServedCertificate::Load(EventLoop* loop,
                                                                           const TlsFiles& files,
                                                                           HttpStats* stats) {
  ASSIGN_OR_RETURN(std::shared_ptr<const TlsContext> context, TlsContext::Load(files));
  return std::unique_ptr<ServedCertificate>(
      new ServedCertificate(loop, files, stats, std::move(context)));
}

ServedCertificate::ServedCertificate(EventLoop* loop, const TlsFiles& files, HttpStats* stats,
                                     std::shared_ptr<const TlsContext> context)
    : files_(files),
      stats_(stats),
      context_(std::move(context)),
      watch_(loop, PathsOf(files), [this] { Reload(); }) {
  WarnOfExpiry();
}

void ServedCertificate::Reload() {
  watch_.Seen();
  auto loaded = TlsContext::Load(files_);
  if (!loaded.ok()) {
    ++stats_->reloads_refused;
    LogError("the new certificate is refused, the one before stays: %s",
             std::string(loaded.status().message()));
    return;
  }
  ++stats_->reloads;
  context_ = *std::move(loaded);
  LogInfo("certificate %s read again, it expires on %s", files_.cert, DateOf(context_->expiry()));
  WarnOfExpiry();
}

void ServedCertificate::WarnOfExpiry() const {
  if (context_->left() >= kTlsExpiryWarning) return;
  LogWarn("certificate %s expires on %s: renew it", files_.cert, DateOf(context_->expiry()));
}

}  // namespace baton
