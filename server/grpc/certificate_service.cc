#include "server/grpc/certificate_service.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace baton {
namespace {

absl::StatusOr<std::string> FileText(const std::string& setting, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file.bad() && !text.empty()) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(setting, ": cannot read ", path, ", or it is empty"));
}

// Credentials of gRPC's core, whose certificate is fetched; its C++ has only those that stay.
class FetchingCredentials : public grpc::ServerCredentials {
 public:
  explicit FetchingCredentials(grpc_server_credentials* core) : core_(core) {}
  ~FetchingCredentials() override { grpc_server_credentials_release(core_); }
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }
  grpc_server_credentials* const core_;
};

}  // namespace

absl::StatusOr<GrpcCertificate::Pem> GrpcCertificate::Read(const TlsFiles& files) {
  Pem pem;
  ASSIGN_OR_RETURN(pem.cert, FileText("server.tls_cert", files.cert));
  ASSIGN_OR_RETURN(pem.key, ReadTlsKey(files.key));
  if (!files.client_ca.empty()) {
    ASSIGN_OR_RETURN(pem.client_ca, FileText("server.tls_client_ca", files.client_ca));
  }
  RETURN_IF_ERROR(TlsContext::Load(files).status());
  return pem;
}

absl::StatusOr<std::unique_ptr<GrpcCertificate>> GrpcCertificate::Load(EventLoop* loop,
                                                                       const TlsFiles& files) {
  ASSIGN_OR_RETURN(Pem pem, Read(files));
  return std::unique_ptr<GrpcCertificate>(new GrpcCertificate(loop, files, std::move(pem)));
}

GrpcCertificate::GrpcCertificate(EventLoop* loop, const TlsFiles& files, Pem pem)
    : files_(files), fresh_(std::move(pem)), watch_(loop, files.paths(), [this] { Reload(); }) {}

std::shared_ptr<grpc::ServerCredentials> GrpcCertificate::Credentials() {
  grpc_ssl_server_credentials_options* const options =
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          files_.client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                   : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
          &Fetch, this);
  return std::make_shared<FetchingCredentials>(
      grpc_ssl_server_credentials_create_with_options(options));
}

void GrpcCertificate::Reload() {
  watch_.Seen();
  auto pem = Read(files_);
  if (!pem.ok()) {
    LogError("the new certificate is refused for gRPC, the one before stays: %s",
             std::string(pem.status().message()));
    return;
  }
  const std::lock_guard lock(mutex_);
  fresh_ = *std::move(pem);
}

grpc_ssl_certificate_config_reload_status GrpcCertificate::Fetch(
    void* self, grpc_ssl_server_certificate_config** config) {
  auto* const certificate = static_cast<GrpcCertificate*>(self);
  std::optional<Pem> pem;
  {
    const std::lock_guard lock(certificate->mutex_);
    pem.swap(certificate->fresh_);
  }
  if (!pem) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair{pem->key.c_str(), pem->cert.c_str()};
  // gRPC wants authorities also where no client is asked for a certificate; it does not use them
  // then, and any certificate will do.
  const std::string& authorities = pem->client_ca.empty() ? pem->cert : pem->client_ca;
  *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace baton
