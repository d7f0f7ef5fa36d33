// The doctor's findings about hosts, certificates and a running cluster: each says what to change.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/cli/certificate_report.h"
#include "server/cli/fleet_report.h"
#include "server/cli/host_report.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;
using Mark = Finding::Mark;

HostFacts GoodHost() {
  HostFacts facts;
  facts.max_descriptors = 65536;
  facts.max_locked_bytes = UINT64_MAX;
  facts.huge_pages = "always [madvise] never";
  facts.clock_source = "tsc";
  facts.is_clock_kept = true;
  facts.clock_error_s = 0.01;
  return facts;
}

// Returns the finding of that name; there is exactly one.
Finding Only(const std::vector<Finding>& findings, const std::string& name) {
  std::vector<Finding> found;
  std::copy_if(findings.begin(), findings.end(), std::back_inserter(found),
               [&](const Finding& each) { return each.name == name; });
  INFO(name);
  REQUIRE(found.size() == 1);
  return found[0];
}

bool AllGood(const std::vector<Finding>& findings) {
  return std::all_of(findings.begin(), findings.end(),
                     [](const Finding& each) { return each.mark == Mark::kGood; });
}

TEST_CASE("a host with room has no notes, and each limit that lacks says what to change") {
  CHECK(AllGood(InspectHost(GoodHost())));
  const auto noted = [](auto change, const char* name, const char* advice) {
    HostFacts facts = GoodHost();
    change(facts);
    const Finding finding = Only(InspectHost(facts), name);
    CHECK(finding.mark == Mark::kNote);
    CHECK_THAT(finding.text, Contains(advice));
  };
  noted([](HostFacts& f) { f.max_descriptors = 1024; }, "nofile", "LimitNOFILE=65536");
  noted([](HostFacts& f) { f.huge_pages = "always madvise [never]"; }, "huge pages",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  noted([](HostFacts& f) { f.huge_pages = ""; }, "huge pages", "no transparent ones");
  noted([](HostFacts& f) { f.clock_source = "hpet"; }, "clock source", "clocksource=tsc");
  noted([](HostFacts& f) { f.is_clock_kept = false; }, "clock", "chrony");
  noted([](HostFacts& f) { f.clock_error_s = 16; }, "clock", "chronyc sources");
  HostFacts locked = GoodHost();
  locked.max_locked_bytes = 64 << 10;
  CHECK_THAT(Only(InspectHost(locked), "memlock").text,
             Contains("64 KiB, enough for KV over tcp") && Contains("LimitMEMLOCK=infinity"));
}

TEST_CASE("what a host tells of itself is read") {
  const HostFacts facts = ReadHostFacts();
  CHECK(facts.max_descriptors > 0);
  CHECK(facts.max_locked_bytes > 0);
  CHECK(InspectHost(facts).size() == 5);
}

TEST_CASE("certificates that end soon, have ended or are none are found") {
  const TempFolder folder;
  const std::string cert = folder.path() + "/cert.pem", key = folder.path() + "/key.pem";
  const auto make = [&](const std::string& to, int days) {
    const std::string command = absl::StrCat(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x "
        "-days ",
        days, " -keyout ", key, " -out ", to, " 2>/dev/null");
    REQUIRE(std::system(command.c_str()) == 0);
  };
  make(cert, 90);
  const auto at = [&](const std::string& path, absl::Duration later) {
    const auto findings = InspectCertificates({{"server.tls_cert", path}, {"cluster.tls_ca", ""}},
                                              absl::Now() + later);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].name == "certificate");
    return findings[0];
  };
  const absl::Duration minute = absl::Minutes(1);
  CHECK(at(cert, minute).mark == Mark::kGood);
  CHECK_THAT(at(cert, minute).text, Contains("in 89 days"));
  CHECK(at(cert, absl::Hours(24 * 80)).mark == Mark::kNote);
  CHECK_THAT(at(cert, absl::Hours(24 * 80)).text, Contains("put a new one in its place"));
  CHECK(at(cert, absl::Hours(24 * 91)).mark == Mark::kBad);
  CHECK_THAT(at(cert, absl::Hours(24 * 91)).text, Contains("expired") && Contains("renew it"));
  CHECK(at(cert, -absl::Hours(24)).mark == Mark::kBad);
  CHECK_THAT(at(key, minute).text, Contains("has no certificate"));
  CHECK_THAT(at(folder.path() + "/none", minute).text, Contains("cannot be read"));
  // The first end counts, of all certificates of a file.
  make(folder.file("second.pem"), 5);
  std::ofstream(folder.file("chain.pem"))
      << std::ifstream(cert).rdbuf() << std::ifstream(folder.file("second.pem")).rdbuf();
  CHECK(at(folder.file("chain.pem"), minute).mark == Mark::kNote);
  CHECK_THAT(at(folder.file("chain.pem"), minute).text, Contains("in 4 days"));
}

FleetPages GoodFleet() {
  FleetPages pages;
  pages.cluster = R"({"object":"cluster","model":"m","ready":true,"model_fingerprint":"00aa",)"
                  R"("numerics_id":"v1"})";
  pages.live =
      R"({"now":1795741200.5,"ready":true,"workers":[
        {"name":"p0","incarnation":"01","silent_ms":20,"links":[{"to":"02","bytes_per_second":9e9},
                                                                {"to":"03","bytes_per_second":8e9}]},
        {"name":"d0","incarnation":"02","silent_ms":30,"links":[]},
        {"name":"d1","incarnation":"03","silent_ms":30,"draining":true,"links":[]}]})";
  pages.metrics = "baton_workers_refused_total{reason=\"other_key\"} 0\n";
  pages.date = absl::UnixEpoch() + absl::Seconds(1795741200.6);
  return pages;
}

TEST_CASE("a fleet that is well has no notes") {
  const auto findings = InspectFleet(GoodFleet(), {});
  CHECK(AllGood(findings));
  CHECK(Only(findings, "workers").text == "3 workers, 1 of them draining");
  CHECK_THAT(Only(findings, "links").text,
             Contains("8.00 GB/s (p0 -> d1) to 9.00 GB/s (p0 -> d0)"));
  CHECK_THAT(Only(findings, "fleet model").text, Contains("m, 00aa, numerics v1"));
}

TEST_CASE("what is wrong in a fleet is found by its worker, link or reason") {
  const auto found = [](auto change, const OwnModel& own, const char* name, Mark mark,
                        const char* text) {
    FleetPages pages = GoodFleet();
    change(pages);
    const Finding finding = Only(InspectFleet(pages, own), name);
    CHECK(finding.mark == mark);
    CHECK_THAT(finding.text, Contains(text));
  };
  const auto replace = [](std::string* text, const std::string& from, const std::string& to) {
    const size_t at = text->find(from);
    REQUIRE(at != std::string::npos);
    text->replace(at, from.size(), to);
  };
  found([&](FleetPages& p) { replace(&p.live, "9e9", "3e8"); }, {}, "links", Mark::kNote,
        "0.30 GB/s (p0 -> d0) to 8.00 GB/s (p0 -> d1); between hosts of one kind look at");
  found([&](FleetPages& p) { replace(&p.live, "9e9", "9e9,\"broken\":true"); }, {}, "link",
        Mark::kBad, "p0 -> d0: broken, no KV gets through though both workers are here");
  found([&](FleetPages& p) { replace(&p.live, "9e9", "0,\"broken\":true"); }, {}, "link",
        Mark::kBad, "let each of them reach cluster.worker_host and kvtransfer.ports of the other");
  found([&](FleetPages& p) { replace(&p.live, "\"silent_ms\":20", "\"silent_ms\":5200"); }, {},
        "worker", Mark::kNote, "p0: silent for 5.2 s");
  found([&](FleetPages& p) { replace(&p.live, "\"silent_ms\":20", "\"standing\":true"); }, {},
        "worker", Mark::kBad, "p0: its engine stands still");
  found([&](FleetPages& p) { replace(&p.live, "\"ready\":true", "\"ready\":false"); }, {},
        "workers", Mark::kBad, "/readyz says");
  found([](FleetPages&) {}, {.name = "mine", .fingerprint = "00ab", .numerics_id = "v1"},
        "fleet model", Mark::kBad, "this host's mine is 00ab");
  found([](FleetPages&) {}, {.name = "mine", .fingerprint = "00aa", .numerics_id = "v1"},
        "fleet model", Mark::kGood, "on every worker");
  found([](FleetPages& p) { p.metrics = "baton_workers_refused_total{reason=\"other_key\"} 7\n"; },
        {}, "refused peers", Mark::kNote, "7 times other_key: give it the same cluster.key_file");
  found([](FleetPages& p) { p.date -= absl::Seconds(60); }, {}, "clocks", Mark::kNote,
        "this host's is 59.900 s behind the router's");
  found([](FleetPages& p) { p.live = "<html>"; }, {}, "cluster", Mark::kBad, "no router's");
}

}  // namespace
}  // namespace baton
