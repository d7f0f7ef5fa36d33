// The certificate that new connections of gRPC get: read at the start, and again when the files
// change or the operator asks. Files that do not serve are refused, and the certificate before
// stays. Connections that are open keep theirs. Loop's thread, but for what gRPC fetches.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/status.h"
#include "server/http/event_loop.h"
#include "server/http/file_watch.h"
#include "server/http/tls_context.h"

namespace baton {

class GrpcCertificate {
 public:
  // InvalidArgument: a file cannot be read, or as TlsContext::Load. The loop must outlive the
  // object, and the object the server that uses its credentials.
  static absl::StatusOr<std::unique_ptr<GrpcCertificate>> Load(EventLoop* loop,
                                                               const TlsFiles& files);
  GrpcCertificate(const GrpcCertificate&) = delete;
  GrpcCertificate& operator=(const GrpcCertificate&) = delete;

  std::shared_ptr<grpc::ServerCredentials> Credentials();
  void Reload();  // a refusal is one line in the log

 private:
  struct Pem {  // the files' texts
    std::string cert, key, client_ca;
  };
  static absl::StatusOr<Pem> Read(const TlsFiles& files);
  GrpcCertificate(EventLoop* loop, const TlsFiles& files, Pem pem);
  // Any of gRPC's threads, for each handshake.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config);

  const TlsFiles files_;
  std::mutex mutex_;
  std::optional<Pem> fresh_;  // that gRPC has not taken yet; guarded by mutex_
  FileWatch watch_;
};

}  // namespace baton
