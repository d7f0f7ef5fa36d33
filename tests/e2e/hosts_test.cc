// Processes of a cluster on several hosts: starts that are refused, and a certificate that changes
// under a running one. The cluster itself: scripts/lab.sh.
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/e2e/served_baton.h"
#include "tests/support/cluster_certificates.h"

namespace baton {
namespace {

using Catch::Contains;

struct Rig {
  Rig() {
    const std::string key = files.folder().file("key");
    std::ofstream(key) << std::string(64, 'a') << "\n";
    REQUIRE(::chmod(key.c_str(), 0600) == 0);
  }

  // Runs `baton COMMAND ARGS...` to its end, which must be status 2. Returns what it wrote.
  std::string Refusal(const std::string& command, const std::string& args) const {
    const std::string line = absl::StrCat(BATON_BINARY, " ", command, " --demo --cluster.key_file ",
                                          files.folder().file("key"), " ", args, " 2>&1");
    std::FILE* pipe = ::popen(("timeout 60 " + line).c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::string text;
    std::array<char, 4096> chunk;
    size_t n = 0;
    while ((n = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0) text.append(chunk.data(), n);
    const int status = ::pclose(pipe);
    CAPTURE(line, text);
    CHECK(WEXITSTATUS(status) == 2);
    return text;
  }
  static std::string Flags(const ClusterTlsFiles& tls) {
    return absl::StrCat("--cluster.tls_cert ", tls.cert, " --cluster.tls_key ", tls.key,
                        " --cluster.tls_ca ", tls.ca);
  }

  ClusterFiles files;
};

TEST_CASE("no control stream leaves the machine in plain text") {
  Rig rig;
  CHECK_THAT(rig.Refusal("router", "--router.control 0.0.0.0:0 --port 0"),
             Contains("router.control: 0.0.0.0:0") && Contains("cluster.tls_cert"));
  CHECK_THAT(rig.Refusal("decode", "--cluster.router 10.0.0.1:7001"),
             Contains("cluster.router: 10.0.0.1:7001") && Contains("cluster.tls_cert"));
}

TEST_CASE("a process of a cluster names the setting of a file that does not serve") {
  Rig rig;
  ClusterFiles others;
  const ClusterTlsFiles router = rig.files.Write("router"), decode = rig.files.Write("decode");
  ClusterTlsFiles wrong = router;
  wrong.key = decode.key;
  CHECK_THAT(rig.Refusal("router", "--port 0 " + Rig::Flags(wrong)),
             Contains("cluster.tls_key") && Contains("is the key of another certificate"));
  wrong = router;
  wrong.ca = others.Write("router").ca;
  CHECK_THAT(rig.Refusal("router", "--port 0 " + Rig::Flags(wrong)),
             Contains("cluster.tls_ca") && Contains("has not signed"));
  CHECK_THAT(rig.Refusal("prefill", "--cluster.router 10.0.0.1:7001 " + Rig::Flags(decode)),
             Contains("cluster.tls_cert") &&
                 Contains("is for the role decode, and this process is prefill"));
  CHECK_THAT(rig.Refusal("serve", "--port 0 " + Rig::Flags(router)),
             Contains("cluster.tls_cert") && Contains("started one by one"));
}

TEST_CASE("a router takes a new certificate, and counts who may not join") {
  Rig rig;
  const ClusterTlsFiles tls = rig.files.Write("router");
  auto router =
      ServedBaton::StartRouter({"--demo", "--cluster.key_file", rig.files.folder().file("key"),
                                "--router.control", "0.0.0.0:0", "--cluster.tls_cert", tls.cert,
                                "--cluster.tls_key", tls.key, "--cluster.tls_ca", tls.ca});
  INFO(router.status().ToString());
  REQUIRE(router.ok());
  rig.files.Write("router");
  CHECK((*router)->WaitForLog("router.pem read again", absl::Seconds(10)));
  const auto page = (*router)->client().Get("/metrics");
  REQUIRE(page.ok());
  CHECK_THAT(page->body, Contains("baton_workers_refused_total{reason=\"other_cluster\"} 0"));
  const std::string name = "\nbaton_cluster_certificate_expiry_timestamp_seconds ";
  const size_t at = page->body.find(name);
  REQUIRE(at != std::string::npos);
  const double left = std::stod(page->body.substr(at + name.size())) -
                      absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  CHECK(left > 89 * 86400);
  CHECK(left < 91 * 86400);
}

}  // namespace
}  // namespace baton
