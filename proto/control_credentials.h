// Mutual TLS of control streams as gRPC's credentials. gRPC shakes hands, which proves that a peer
// has the key of its certificate; whom the certificate makes it is checked here, at the end of the
// handshake and before HTTP/2 begins, by ClusterCertificate. Any thread.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <mutex>
#include <string>

#include "common/status.h"
#include "proto/cluster_certificate.h"
#include "proto/join_refusals.h"

namespace baton {

// Returns the credentials of a worker's end. Null: plain text.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(
    std::shared_ptr<const ClusterCertificate> certificate);

// Mutual TLS of the router's end, with a certificate that may change. Streams keep what they began
// with; new ones get the new certificate within a second.
class ControlServerTls {
 public:
  // Unavailable: the system gives no memory file. refusals: of peers without a stream.
  static absl::StatusOr<std::unique_ptr<ControlServerTls>> Start(
      std::shared_ptr<const ClusterCertificate> certificate,
      std::shared_ptr<JoinRefusals> refusals);
  ~ControlServerTls();
  ControlServerTls(const ControlServerTls&) = delete;
  ControlServerTls& operator=(const ControlServerTls&) = delete;

  std::shared_ptr<grpc::ServerCredentials> credentials() const { return credentials_; }
  void Reload();  // reads the files again; the log says how it went
  absl::Time expiry() const { return current_->Get()->expiry(); }
  // Returns the role in the certificate of a stream's peer. Errors of RoleOfPeer.
  absl::StatusOr<std::string> RoleOf(const grpc::AuthContext& peer, JoinFault* fault) const;

  // The certificate in force.
  class Current {
   public:
    explicit Current(std::shared_ptr<const ClusterCertificate> first) : now_(std::move(first)) {}
    std::shared_ptr<const ClusterCertificate> Get() const {
      const std::lock_guard lock(mutex_);
      return now_;
    }
    void Set(std::shared_ptr<const ClusterCertificate> next) {
      const std::lock_guard lock(mutex_);
      now_ = std::move(next);
    }

   private:
    mutable std::mutex mutex_;
    std::shared_ptr<const ClusterCertificate> now_;
  };

 private:
  ControlServerTls(std::shared_ptr<const ClusterCertificate> certificate, int file)
      : current_(std::make_shared<Current>(std::move(certificate))), file_(file) {}
  absl::Status Publish(const ClusterCertificate& certificate) const;

  const std::shared_ptr<Current> current_;
  const int file_;  // in memory, where gRPC reads key and certificate
  std::shared_ptr<grpc::ServerCredentials> credentials_;
};

}  // namespace baton
