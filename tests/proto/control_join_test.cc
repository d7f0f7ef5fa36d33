// Peers that join over mutual TLS, and peers that are refused: by certificate, by proof, by what
// was recorded. Other workers do not notice.
#include <array>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "proto/control_codec.h"
#include "tests/support/bare_control.h"
#include "tests/support/cluster_certificates.h"
#include "tests/support/control_ends.h"

namespace baton {
namespace {

using Catch::Contains;

constexpr absl::Duration kMoment = absl::Milliseconds(300);

using Counts = std::array<std::atomic<int>, kJoinFaults>;

ControlServerOptions Served(std::shared_ptr<const ClusterCertificate> certificate,
                            Counts* counts = nullptr) {
  ControlServerOptions options;
  options.address = "0.0.0.0:0";
  options.certificate = std::move(certificate);
  if (counts != nullptr)
    options.on_refused = [counts](JoinFault fault) { ++(*counts)[static_cast<size_t>(fault)]; };
  return options;
}

auto With(std::shared_ptr<const ClusterCertificate> certificate) {
  return [certificate](ControlClientOptions* options) { options->certificate = certificate; };
}

std::string TextOf(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A channel by gRPC's own TLS, with any certificate or none.
std::shared_ptr<grpc::Channel> BareChannel(const RouterEnd& router, const ClusterFiles& files,
                                           const ClusterTlsFiles& own = {}) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = TextOf(files.folder().file("ca.pem"));
  if (!own.cert.empty()) {
    options.pem_private_key = TextOf(own.key);
    options.pem_cert_chain = TextOf(own.cert);
  }
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("localhost");  // which gRPC's resolver of names would leak
  return grpc::CreateCustomChannel("ipv4:" + router.address(), grpc::SslCredentials(options),
                                   arguments);
}

// Calls Attach and waits for its end.
grpc::Status Attach(const std::shared_ptr<grpc::Channel>& channel, const std::string& proof = "") {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  if (!proof.empty()) context.AddMetadata(kWorkerProofKey, proof);
  return wire::Control::NewStub(channel)->Attach(&context)->Finish();
}

}  // namespace

TEST_CASE("a worker joins over mutual TLS beyond the loopback, and both ends talk") {
  ClusterFiles files;
  RouterEnd router(Served(files.Load("router")));
  WorkerEnd worker(router.address(), 5, With(files.Load("both")));
  router.AwaitWorker(5);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  CheckTalks(&router, &worker, 5);
}

TEST_CASE("without certificates the control port stays on the loopback") {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "127.example.com:0", "10.0.0.1:0"}) {
    const auto open = ControlServer::Start({.address = address});
    CHECK(open.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(open.status().message()),
               Contains("router.control") && Contains("cluster.tls_cert"));
  }
}

TEST_CASE("peers without a fitting certificate are refused by name, and others do not notice") {
  ClusterFiles files, strangers;
  Counts counts{};
  RouterEnd router(Served(files.Load("router"), &counts));
  WorkerEnd worker(router.address(), 5, With(files.Load("both")));
  router.AwaitWorker(5);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  const absl::Duration past = absl::Hours(-2), now = absl::Hours(-1), future = absl::Hours(1);
  const std::pair<JoinFault, ClusterTlsFiles> cases[] = {
      {JoinFault::kNoCertificate, {}},
      {JoinFault::kForeignCertificate, strangers.Write("decode")},
      {JoinFault::kExpiredCertificate, files.Write("decode", past, now)},
      {JoinFault::kOtherCluster, files.Write("prefill", now, future, "green")},
      {JoinFault::kOtherRole, files.Write("router")},
  };
  for (const auto& [fault, own] : cases) {
    CAPTURE(kJoinFaultNames[static_cast<size_t>(fault)]);
    const int before = counts[static_cast<size_t>(fault)];
    const grpc::Status status = Attach(BareChannel(router, files, own));
    CHECK(status.error_code() == grpc::StatusCode::UNAVAILABLE);
    CHECK(counts[static_cast<size_t>(fault)] > before);
    CheckTalks(&router, &worker, 5);
  }
  // Plain text is no handshake.
  const auto plain = grpc::CreateChannel(router.address(), grpc::InsecureChannelCredentials());
  CHECK(Attach(plain).error_code() == grpc::StatusCode::UNAVAILABLE);
  CheckTalks(&router, &worker, 5);
}

TEST_CASE("a worker announces the role of its certificate, or loses its stream") {
  ClusterFiles files;
  Counts counts{};
  RouterEnd router(Served(files.Load("router"), &counts));
  const auto certificate = files.Load("decode");
  WorkerEnd liar(router.address(), 5, [&](ControlClientOptions* options) {
    options->certificate = certificate;
    options->min_pause = absl::Hours(1);
  });
  REQUIRE(router.Next<WorkerConnected>().has_value());
  const auto lost = router.Next<WorkerLost>();  // and its announcement was not taken
  REQUIRE(lost.has_value());
  CHECK_THAT(std::string(lost->reason.message()),
             Contains("announces the role both, and its certificate is for decode"));
  CHECK(counts[static_cast<size_t>(JoinFault::kOtherRole)] == 1);
  WorkerEnd honest(router.address(), 6, [&](ControlClientOptions* options) {
    options->certificate = certificate;
    options->announce.role = Role::kDecode;
  });
  router.AwaitWorker(6);
}

TEST_CASE("a worker of another version of the wire is refused by name, and counted") {
  Counts counts{};
  ControlServerOptions options;
  options.on_refused = [&](JoinFault fault) { ++counts[static_cast<size_t>(fault)]; };
  RouterEnd router(options);
  const auto channel = grpc::CreateChannel(router.address(), grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.AddMetadata(kWorkerProofKey, FreshProof(channel, options.key, 5));
  const auto stream = wire::Control::NewStub(channel)->Attach(&context);
  wire::WorkerReport report;
  // The rest is as the other version has it: here a name that this one does not take.
  wire::WorkerAnnounce* announce = report.add_events()->mutable_announce();
  announce->set_wire_version(kControlVersion - 1);
  announce->set_name(std::string(10'000, 'x'));
  CHECK(stream->Write(report));
  CHECK_THAT(stream->Finish().error_message(),
             Contains(absl::StrCat("wire_version is ", kControlVersion - 1)) &&
                 Contains("run the same version of baton everywhere"));
  CHECK(counts[static_cast<size_t>(JoinFault::kOtherVersion)] == 1);
}

TEST_CASE("TLS does not replace the cluster key") {
  ClusterFiles files;
  Counts counts{};
  RouterEnd router(Served(files.Load("router"), &counts));
  const auto certificate = files.Load("both");
  WorkerEnd stranger(router.address(), 5, [&](ControlClientOptions* options) {
    options->certificate = certificate;
    options->key = {2};
    options->min_pause = absl::Hours(1);
  });
  CHECK_FALSE(router.Next<WorkerConnected>(kMoment).has_value());
  CHECK(counts[static_cast<size_t>(JoinFault::kOtherKey)] == 1);
}

TEST_CASE("a worker takes only its cluster's router") {
  ClusterFiles files, strangers;
  const auto certificate = files.Load("both");
  const auto refuses = [&](std::shared_ptr<const ClusterCertificate> served) {
    RouterEnd router(Served(std::move(served)));
    WorkerEnd worker(router.address(), 5, With(certificate));
    CHECK_FALSE(router.Next<WorkerConnected>(kMoment).has_value());
    CHECK(worker.events.size() == 0);
  };
  refuses(strangers.Load("router"));
  refuses(*ClusterCertificate::Load(files.Write("router", absl::Hours(-1), absl::Hours(1), "green"),
                                    "router"));
}

TEST_CASE("a recorded proof opens no second stream, at this router or at another") {
  Counts counts{};
  ControlServerOptions options = Served(nullptr, &counts);
  options.address = "127.0.0.1:0";
  options.key = {7};
  RouterEnd router(options), other(options);
  const auto channel = grpc::CreateChannel(router.address(), grpc::InsecureChannelCredentials());
  const std::string recorded = FreshProof(channel, {7}, 5);
  {
    grpc::ClientContext context;
    context.AddMetadata(kWorkerProofKey, recorded);
    const auto stream = wire::Control::NewStub(channel)->Attach(&context);
    REQUIRE(router.Next<WorkerConnected>().has_value());
    context.TryCancel();
    stream->Finish();
    REQUIRE(router.Next<WorkerLost>().has_value());
  }
  for (RouterEnd* end : {&router, &other}) {
    const int before = counts[static_cast<size_t>(JoinFault::kReplayedProof)];
    const grpc::Status status =
        Attach(grpc::CreateChannel(end->address(), grpc::InsecureChannelCredentials()), recorded);
    CHECK(status.error_code() == grpc::StatusCode::UNAUTHENTICATED);
    CHECK_THAT(status.error_message(), Contains("challenge that was used"));
    CHECK(counts[static_cast<size_t>(JoinFault::kReplayedProof)] == before + 1);
    CHECK_FALSE(end->Next<WorkerConnected>(kMoment).has_value());
  }
  // A new proof of the same worker is good.
  WorkerEnd worker(router.address(), 5, [](ControlClientOptions* o) { o->key = {7}; });
  router.AwaitWorker(5);
}

namespace {

// A router that knows nothing but what it heard once.
class RecordedRouter final : public wire::Control::Service {
 public:
  RecordedRouter(std::string challenge, std::string proof)
      : challenge_(std::move(challenge)), proof_(std::move(proof)) {}
  grpc::Status Attach(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<wire::RouterMessages, wire::WorkerReport>* stream) override {
    if (context->client_metadata().count(kWorkerProofKey) == 0) {
      context->AddTrailingMetadata(kChallengeKey, challenge_);
      context->AddTrailingMetadata(kRouterIdKey, RouterIdText(0));
      return {grpc::StatusCode::UNAUTHENTICATED, ""};
    }
    ++n_proofs;
    context->AddInitialMetadata(kRouterProofKey, proof_);
    stream->SendInitialMetadata();
    wire::WorkerReport report;
    while (stream->Read(&report)) {
    }
    return grpc::Status::OK;
  }
  std::atomic<int> n_proofs = 0;

 private:
  const std::string challenge_, proof_;
};

}  // namespace

TEST_CASE("a recorded answer of the router does not pass for the router") {
  const ClusterKey key{7};
  const ProvenWorker heard{.incarnation = 5, .nonce = 1, .challenge = 99};
  RecordedRouter recorded(ChallengeText(heard.challenge), RouterProof(key, heard));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&recorded);
  const auto server = builder.BuildAndStart();
  {
    WorkerEnd worker(absl::StrCat("127.0.0.1:", port), 5,
                     [&](ControlClientOptions* options) { options->key = key; });
    for (const absl::Time end = absl::Now() + absl::Seconds(10);
         recorded.n_proofs < 3 && absl::Now() < end;)
      absl::SleepFor(absl::Milliseconds(1));
    CHECK(recorded.n_proofs >= 3);  // it tries, and believes none
    CHECK(worker.events.size() == 0);
  }
  server->Shutdown(std::chrono::system_clock::now());
}

TEST_CASE("certificates and authorities change under running streams") {
  ClusterFiles files, next;
  RouterEnd router(Served(files.Load("router")));
  const auto first = files.Load("both");
  WorkerEnd worker(router.address(), 5, With(first));
  router.AwaitWorker(5);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());

  // Both authorities are trusted for a while; the router's certificate is the new one's.
  const std::string both = files.authority().pem() + next.authority().pem();
  for (const ClusterFiles* each : {&files, &next}) each->folder().Write("ca.pem", both);
  const ClusterTlsFiles renewed = next.Write("router");
  files.folder().Write("router.pem", TextOf(renewed.cert));
  files.folder().Write("router.key", TextOf(renewed.key));
  router.server->ReloadCertificate();
  WorkerEnd of_next(router.address(), 6, With(next.Load("both")));
  router.AwaitWorker(6);
  REQUIRE(of_next.events.Next<RouterConnected>().has_value());
  CheckTalks(&router, &worker, 5);
  CheckTalks(&router, &of_next, 6);

  // A pair that does not serve changes nothing.
  files.folder().Write("router.key", TextOf(files.Files("both").key));
  router.server->ReloadCertificate();
  WorkerEnd third(router.address(), 7, With(next.Load("both")));
  router.AwaitWorker(7);
  CheckTalks(&router, &worker, 5);
}

TEST_CASE("a worker dials with the certificate that its files have then") {
  ClusterFiles files, next;
  auto router = std::make_unique<RouterEnd>(Served(files.Load("router")));
  const std::string address = router->address();
  const int port = router->server->port();
  WorkerEnd worker(address, 5, With(files.Load("both")));
  router->AwaitWorker(5);
  const ClusterTlsFiles renewed = next.Write("both");
  router.reset();
  files.folder().Write("ca.pem", next.authority().pem());
  files.folder().Write("both.pem", TextOf(renewed.cert));
  files.folder().Write("both.key", TextOf(renewed.key));
  ControlServerOptions again = Served(next.Load("router"));
  again.address = absl::StrCat("0.0.0.0:", port);
  RouterEnd second(again);
  second.AwaitWorker(5);
}

}  // namespace baton
