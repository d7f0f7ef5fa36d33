#include "server/http/served_certificate.h"

#include <utility>

#include "common/certificate_dates.h"
#include "common/log.h"

namespace baton {
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
      watch_(loop, files.paths(), [this] { Reload(); }) {
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
  LogInfo("certificate %s read again, it expires on %s", files_.cert, DateText(context_->expiry()));
  WarnOfExpiry();
}

void ServedCertificate::WarnOfExpiry() const {
  baton::WarnOfExpiry(files_.cert, context_->expiry(), context_->left());
}

}  // namespace baton
