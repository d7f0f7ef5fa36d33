// Looks at the files of a process's cluster certificate while the process runs, also when its
// streams last for months: in the last 14 days, or if the files would not serve, a line in the log
// says so. Loop's thread.
#pragma once

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "proto/cluster_certificate.h"
#include "server/http/event_loop.h"
#include "server/http/file_watch.h"

namespace baton {

class ClusterCertificateWatch {
 public:
  // Calls tell_expiry now, and after each look: whenever the files change, and once per `every`. It
  // is told of the certificate before while the files do not serve.
  ClusterCertificateWatch(EventLoop* loop, std::shared_ptr<const ClusterCertificate> certificate,
                          std::function<void(absl::Time)> tell_expiry,
                          absl::Duration every = absl::Hours(12));
  void Look();  // now

 private:
  std::shared_ptr<const ClusterCertificate> certificate_;
  const std::function<void(absl::Time)> tell_expiry_;
  const absl::Duration every_;
  EventLoop::Timer timer_;
  FileWatch files_;
};

}  // namespace baton
