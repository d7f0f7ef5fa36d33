#include "server/process/cluster_certificate_watch.h"

#include <string>
#include <utility>

#include "common/clock.h"
#include "common/log.h"

namespace baton {

ClusterCertificateWatch::ClusterCertificateWatch(
    EventLoop* loop, std::shared_ptr<const ClusterCertificate> certificate,
    std::function<void(absl::Time)> tell_expiry, absl::Duration every)
    : certificate_(std::move(certificate)),
      tell_expiry_(std::move(tell_expiry)),
      every_(every),
      timer_(loop),
      files_(loop,
             {certificate_->files().cert, certificate_->files().key, certificate_->files().ca},
             [this] { Look(); }) {
  tell_expiry_(certificate_->expiry());
  timer_.Set(MonotonicNow() + every_, [this] { Look(); });
}

void ClusterCertificateWatch::Look() {
  auto now = certificate_->Reload();
  if (now.ok()) {
    certificate_ = *std::move(now);
    certificate_->WarnOfExpiry();
  } else {
    LogError("the files of the cluster's certificate do not serve: %s",
             std::string(now.status().message()));
  }
  tell_expiry_(certificate_->expiry());
  timer_.Set(MonotonicNow() + every_, [this] { Look(); });
}

}  // namespace baton
