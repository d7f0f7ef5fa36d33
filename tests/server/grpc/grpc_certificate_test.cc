// The certificate of the gRPC server changes while calls run; files that do not serve are refused.
#include <catch2/catch.hpp>

#include "tests/server/grpc/served_grpc.h"
#include "tests/support/certificates.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

struct Caller {
  Caller(int port, const TestAuthority& authority) {
    grpc::ChannelArguments own;
    grpc::SslCredentialsOptions trusted;
    trusted.pem_root_certs = authority.pem();
    own.SetInt("own.channel", ++n_channels);  // channels with the same arguments share connections
    channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                        grpc::SslCredentials(trusted), own);
    stub = v1::Completion::NewStub(channel);
  }
  // CN of the server's certificate; empty: there was no connection.
  std::string Subject() const {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    if (!stub->ListModels(&context, {}, &models).ok()) return "";
    const auto names = context.auth_context()->FindPropertyValues("x509_common_name");
    return names.empty() ? "" : std::string(names[0].data(), names[0].size());
  }

  static inline int n_channels = 0;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Completion::Stub> stub;
};

TEST_CASE("new connections get the certificate that the files have, and streams go on") {
  const TempFolder folder;
  TestAuthority authority("authority");
  authority.Issue("first").WriteTo(folder, "served");
  GrpcOptions options;
  options.tls = {
      .cert = folder.file("served.pem"), .key = folder.file("served.key"), .client_ca = ""};
  ServedGrpc served(options);
  served.generator->hold = true;
  const int port = served.grpc->port();
  const Caller before(port, authority);
  CHECK(before.Subject() == "first");
  grpc::ClientContext context;
  const auto stream = before.stub->Generate(&context, OfIds({5}, 2));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));

  SECTION("because the files changed") { authority.Issue("second").WriteTo(folder, "served"); }
  SECTION("because the operator asks") {
    authority.Issue("second").WriteTo(folder, "served");
    served.On([&] { served.grpc->ReloadCertificate(); });
  }
  const auto subject = [&] { return Caller(port, authority).Subject(); };
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (subject() != "second" && absl::Now() < end) absl::SleepFor(absl::Milliseconds(20));
  CHECK(subject() == "second");
  // The key of another certificate: the pair before stays.
  folder.Write("served.key", authority.Issue("torn").key);
  served.On([&] { served.grpc->ReloadCertificate(); });
  CHECK(subject() == "second");

  served.On([&] {
    served.generator->StepAll();
    served.generator->StepAll();
  });
  v1::GenerateResponse response;
  while (stream->Read(&response)) {
  }
  CHECK(stream->Finish().ok());
  CHECK(before.Subject() == "first");  // on the connection of the time before
}

}  // namespace
}  // namespace baton
