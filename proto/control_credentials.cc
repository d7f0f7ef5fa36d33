#include "proto/control_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace baton {
namespace {

constexpr unsigned kRefreshSeconds = 1;

using CurrentFn = std::function<std::shared_ptr<const ClusterCertificate>()>;

// Decides about a peer at the end of the handshake.
class PeerCheck final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  // refusals: null where nobody counts.
  PeerCheck(CurrentFn current, std::shared_ptr<JoinRefusals> refusals)
      : current_(std::move(current)), refusals_(std::move(refusals)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* status) override {
    const grpc::string_ref own = request->peer_cert(), chain = request->peer_cert_full_chain();
    std::string pem(own.data(), own.size());
    pem.append("\n").append(chain.data(), chain.size());
    JoinFault fault{};
    const absl::StatusOr<std::string> role = current_()->RoleOfPeer(pem, &fault);
    if (!role.ok()) {
      const std::string why(role.status().message());
      if (refusals_ != nullptr) refusals_->Add(fault, "", why);
      *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, why);
    }
    return true;  // checked at once
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const CurrentFn current_;
  const std::shared_ptr<JoinRefusals> refusals_;
};

// gRPC's own checks are off: PeerCheck makes them, and can say what is wrong.
void SetChecks(CurrentFn current, std::shared_ptr<JoinRefusals> refusals,
               grpc::experimental::TlsCredentialsOptions* options) {
  options->watch_identity_key_cert_pairs();
  options->set_check_call_host(false);
  options->set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<PeerCheck>(std::move(current),
                                                                         std::move(refusals)));
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(
    std::shared_ptr<const ClusterCertificate> certificate) {
  if (certificate == nullptr) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          std::vector<grpc::experimental::IdentityKeyCertPair>{
              {certificate->key(), certificate->chain()}}));
  options.set_verify_server_certs(false);
  SetChecks([certificate] { return certificate; }, nullptr, &options);
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<std::unique_ptr<ControlServerTls>> ControlServerTls::Start(
    std::shared_ptr<const ClusterCertificate> certificate, std::shared_ptr<JoinRefusals> refusals) {
  const int file = ::memfd_create("baton-cluster-certificate", MFD_CLOEXEC);
  if (file < 0)
    return absl::UnavailableError(
        absl::StrCat("no memory file for the cluster's certificate: ", std::strerror(errno)));
  std::unique_ptr<ControlServerTls> tls(new ControlServerTls(std::move(certificate), file));
  RETURN_IF_ERROR(tls->Publish(*tls->current_->Get()));
  const std::string path = absl::StrCat("/proc/self/fd/", file);
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(path, path,
                                                                           kRefreshSeconds));
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  SetChecks([current = tls->current_] { return current->Get(); }, std::move(refusals), &options);
  tls->credentials_ = grpc::experimental::TlsServerCredentials(options);
  return tls;
}

ControlServerTls::~ControlServerTls() { ::close(file_); }

// gRPC reads the file every second, and can be given a new certificate in no other way. What it
// reads was checked before: key and certificate go together.
absl::Status ControlServerTls::Publish(const ClusterCertificate& certificate) const {
  const std::string pem = absl::StrCat(certificate.key(), "\n", certificate.chain());
  const auto size = static_cast<ssize_t>(pem.size());
  if (::ftruncate(file_, 0) != 0 || ::pwrite(file_, pem.data(), pem.size(), 0) != size)
    return absl::UnavailableError(
        absl::StrCat("no memory for the cluster's certificate: ", std::strerror(errno)));
  return absl::OkStatus();
}

void ControlServerTls::Reload() {
  const auto next = current_->Get()->Reload();
  const absl::Status status = next.ok() ? Publish(**next) : next.status();
  if (!status.ok())
    return LogError("the cluster's new certificate is refused, the one before stays: %s",
                    std::string(status.message()));
  current_->Set(*next);
  LogInfo("certificate %s read again", (*next)->files().cert);
  (*next)->WarnOfExpiry();
}

absl::StatusOr<std::string> ControlServerTls::RoleOf(const grpc::AuthContext& peer,
                                                     JoinFault* fault) const {
  std::string pem;
  for (const char* property :
       {GRPC_X509_PEM_CERT_PROPERTY_NAME, GRPC_X509_PEM_CERT_CHAIN_PROPERTY_NAME})
    for (const grpc::string_ref& text : peer.FindPropertyValues(property))
      pem.append(text.data(), text.size()).append("\n");
  return current_->Get()->RoleOfPeer(pem, fault);
}

}  // namespace baton
