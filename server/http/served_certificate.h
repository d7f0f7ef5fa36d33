// The certificate that new connections get: read at the start, and again when the files change or
// the operator asks. Files that do not serve are refused, and the certificate before stays.
// Connections that are open keep theirs. Loop's thread.
#pragma once

#include <memory>

#include "common/status.h"
#include "server/http/event_loop.h"
#include "server/http/file_watch.h"
#include "server/http/http_stats.h"
#include "server/http/tls_context.h"

namespace baton {

class ServedCertificate {
 public:
  // Errors of TlsContext::Load. Loop and stats must outlive the object.
  static absl::StatusOr<std::unique_ptr<ServedCertificate>> Load(EventLoop* loop,
                                                                 const TlsFiles& files,
                                                                 HttpStats* stats);

  const std::shared_ptr<const TlsContext>& context() const { return context_; }
  void Reload();  // the log and the stats say how it went

 private:
  ServedCertificate(EventLoop* loop, const TlsFiles& files, HttpStats* stats,
                    std::shared_ptr<const TlsContext> context);
  void WarnOfExpiry() const;

  const TlsFiles files_;
  HttpStats* stats_;
  std::shared_ptr<const TlsContext> context_;
  FileWatch watch_;
};

}  // namespace baton
