// Which files of a cluster's mutual TLS are refused at the start, and which peers later.
#include "proto/cluster_certificate.h"

#include <sys/stat.h>

#include <fstream>

#include "tests/support/cluster_certificates.h"

namespace baton {
namespace {

using Catch::Contains;

std::string Error(const ClusterTlsFiles& files, const std::string& role) {
  const auto loaded = ClusterCertificate::Load(files, role);
  if (loaded.ok()) return "";
  CHECK(absl::IsInvalidArgument(loaded.status()));
  return std::string(loaded.status().message());
}

// Returns why a router or a worker refuses a certificate, and with which fault.
std::pair<std::string, JoinFault> Refusal(const ClusterCertificate& own, const std::string& pem) {
  JoinFault fault{};
  const auto role = own.RoleOfPeer(pem, &fault);
  CHECK(absl::IsUnauthenticated(role.status()));
  return {std::string(role.status().message()), fault};
}

}  // namespace

TEST_CASE("a certificate of the own role is taken, with its dates") {
  ClusterFiles files;
  for (const char* role : {"router", "prefill", "decode", "both"}) {
    const auto loaded = files.Load(role);
    CHECK(loaded->expiry() - absl::Now() > absl::Hours(24 * 89));
    CHECK(loaded->expiry() - absl::Now() < absl::Hours(24 * 91));
  }
}

TEST_CASE("the start names the setting of a file that is not there or is no PEM") {
  ClusterFiles files;
  const ClusterTlsFiles good = files.Write("router");
  const std::pair<std::string ClusterTlsFiles::*, std::string> settings[] = {
      {&ClusterTlsFiles::cert, "cluster.tls_cert"},
      {&ClusterTlsFiles::key, "cluster.tls_key"},
      {&ClusterTlsFiles::ca, "cluster.tls_ca"}};
  for (const auto& [file, setting] : settings) {
    ClusterTlsFiles wrong = good;
    (wrong.*file).clear();
    CHECK_THAT(Error(wrong, "router"), Contains(setting + " is not set"));
    wrong.*file = files.folder().file("nothing");
    CHECK_THAT(Error(wrong, "router"),
               Contains(setting + ": " + wrong.*file) && Contains(" cannot be read (No such file"));
    wrong.*file = files.folder().file("text.pem");
    files.folder().Write("text.pem", "no PEM at all\n");
    REQUIRE(::chmod((wrong.*file).c_str(), 0600) == 0);
    CHECK_THAT(Error(wrong, "router"), Contains(setting + ": " + wrong.*file));
  }
}

TEST_CASE("the start refuses files that do not go together, with what to change") {
  ClusterFiles files, others;
  const ClusterTlsFiles good = files.Write("router"), worker = files.Write("decode");
  ClusterTlsFiles wrong = good;
  wrong.key = worker.key;
  CHECK_THAT(Error(wrong, "router"),
             Contains("cluster.tls_key") && Contains("another certificate"));
  wrong = good;
  wrong.ca = others.Write("router").ca;
  CHECK_THAT(Error(wrong, "router"), Contains("cluster.tls_ca") && Contains("has not signed"));
  CHECK_THAT(Error(worker, "router"),
             Contains("is for the role decode, and this process is router") &&
                 Contains("baton://blue/router"));
  wrong = good;
  wrong.ca = files.folder().file("both.pem");
  std::ofstream(wrong.ca) << std::ifstream(good.ca).rdbuf()
                          << "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
  CHECK_THAT(Error(wrong, "router"), Contains("cluster.tls_ca") && Contains("damaged"));
  REQUIRE(::chmod(good.key.c_str(), 0604) == 0);
  CHECK_THAT(Error(good, "router"), Contains("cluster.tls_key") && Contains("chmod 600"));
  CHECK_THAT(Error(files.Write("router", absl::Hours(-2), absl::Hours(-1)), "router"),
             Contains("cluster.tls_cert") && Contains("expired on"));
  CHECK_THAT(Error(files.Write("router", absl::Hours(1), absl::Hours(2)), "router"),
             Contains("is not valid before"));
}

TEST_CASE("the start refuses a certificate that does not name one cluster and role") {
  ClusterFiles files;
  ClusterTlsFiles named = files.Files("named");
  const auto issue = [&](const std::string& names) {
    files.authority()
        .Issue("named", absl::Hours(-1), absl::Hours(1), names)
        .WriteTo(files.folder(), "named");
    return Error(named, "router");
  };
  CHECK_THAT(issue(""), Contains("has 0 alternative names baton://CLUSTER/ROLE"));
  CHECK_THAT(issue("URI:baton://a/router,URI:baton://b/router"), Contains("has 2 alternative"));
  for (const char* wrong :
       {"URI:baton://blue", "URI:baton://blue/boss", "URI:baton:///router",
        "URI:baton://blue/router/x", "URI:baton://bl ue/router", "URI:baton://blue/"})
    CHECK_THAT(issue(wrong), Contains("that is not baton://CLUSTER/ROLE"));
  CHECK(issue("URI:baton://blue/router,URI:https://blue/decode").empty());
}

TEST_CASE("a router takes workers of its cluster, a worker takes its router") {
  ClusterFiles files;
  const auto router = files.Load("router"), prefill = files.Load("prefill"),
             decode = files.Load("decode");
  JoinFault fault{};
  CHECK(router->RoleOfPeer(prefill->chain(), &fault).value() == "prefill");
  CHECK(router->RoleOfPeer(decode->chain(), &fault).value() == "decode");
  CHECK(decode->RoleOfPeer(router->chain(), &fault).value() == "router");
  const auto [why, what] = Refusal(*decode, prefill->chain());
  CHECK(what == JoinFault::kOtherRole);
  CHECK_THAT(why, Contains("is for the role prefill, where a router is expected"));
  CHECK(Refusal(*router, router->chain()).second == JoinFault::kOtherRole);
}

TEST_CASE("a peer is refused by what is wrong with its certificate") {
  ClusterFiles files, strangers;
  const auto router = files.Load("router");
  const auto chain_of = [](const ClusterTlsFiles& written) {
    std::ifstream in(written.cert);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  CHECK(Refusal(*router, "").second == JoinFault::kNoCertificate);
  CHECK(Refusal(*router, "-----BEGIN CERTIFICATE-----\nAAAA\n").second ==
        JoinFault::kNoCertificate);
  const auto [foreign, what] = Refusal(*router, chain_of(strangers.Write("decode")));
  CHECK(what == JoinFault::kForeignCertificate);
  CHECK_THAT(foreign, Contains("CN=decode") && Contains("cluster.tls_ca"));
  CHECK(
      Refusal(*router, chain_of(files.Write("decode", absl::Hours(-2), absl::Hours(-1)))).second ==
      JoinFault::kExpiredCertificate);
  CHECK(Refusal(*router, chain_of(files.Write("decode", absl::Hours(1), absl::Hours(2)))).second ==
        JoinFault::kExpiredCertificate);
  const auto [other, of_other] =
      Refusal(*router, chain_of(files.Write("decode", absl::Hours(-1), absl::Hours(1), "green")));
  CHECK(of_other == JoinFault::kOtherCluster);
  CHECK_THAT(other, Contains("is of the cluster green, not blue"));
  files.authority().Issue("nameless").WriteTo(files.folder(), "nameless");
  CHECK(Refusal(*router, chain_of(files.Files("nameless"))).second == JoinFault::kNoRole);
  // The authority itself signed nothing for a role.
  CHECK(Refusal(*router, files.authority().pem()).second == JoinFault::kNoRole);
}

}  // namespace baton
