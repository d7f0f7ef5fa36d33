#include "server/process/worker_placement.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// Returns "0-1:2 2:1": CPUs and threads of each worker of a role.
std::string Text(const std::vector<CpuPlacement>& places) {
  std::string text;
  for (const CpuPlacement& place : places)
    absl::StrAppend(&text, text.empty() ? "" : " ", place.cpus, ":", place.threads);
  return text;
}

CpuAllowance Cpus(std::vector<int> cpus) { return {.cpus = std::move(cpus), .quota = {}}; }

CpuAllowance Quota(int n_cpus, double cpus) {
  CpuAllowance allowance;
  allowance.cpus.resize(static_cast<size_t>(n_cpus));
  std::iota(allowance.cpus.begin(), allowance.cpus.end(), 0);
  allowance.quota = {.cpus = cpus, .group = 7};
  return allowance;
}

TEST_CASE("CPUs: decoding has its own where there are two") {
  Config config;
  const auto place = [&](std::vector<int> cpus) {
    return PlaceWorkers(config, Cpus(std::move(cpus)), -1);
  };
  Placement placement = place({0, 1});
  CHECK(Text(placement.decode) == "0:1");
  CHECK(Text(placement.prefill) == "1:1 1:1");
  CHECK_FALSE(placement.exceeds_quota);
  placement = place({3});
  CHECK(Text(placement.decode) == "3:1");
  CHECK(Text(placement.prefill) == "3:1 3:1");
  placement = place({0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(Text(placement.decode) == "0-1:2");
  CHECK(Text(placement.prefill) == "2-4:3 5-7:3");
  placement = place({});  // the system gives no topology
  CHECK(Text(placement.decode) == ":1");
  CHECK(Text(placement.prefill) == ":1 :1");
  config.cluster.colocated = true;
  config.decode.workers = 2;
  placement = place({0, 1, 2});
  CHECK(Text(placement.decode) == "0-1:2 2:1");
  CHECK(placement.prefill.empty());
  config.decode.cpus = "0,5-6";
  CHECK(Text(place({0, 1}).decode) == "0,5-6:3 0,5-6:3");
}

TEST_CASE("a quota: the CPUs stay, its whole CPUs are the threads of all workers") {
  Config config;
  const auto place = [&](const CpuAllowance& allowance) {
    Placement placement = PlaceWorkers(config, allowance, 5);
    return Text(placement.decode) + " | " + Text(placement.prefill) +
           (placement.exceeds_quota ? " too much" : "");
  };
  CHECK(place(Quota(96, 4)) == "0-31:1 | 32-63:2 64-95:1");
  CHECK(place(Quota(96, 3)) == "0-31:1 | 32-63:1 64-95:1");
  CHECK(place(Quota(96, 32.5)) == "0-31:10 | 32-63:11 64-95:11");
  CHECK(place(Quota(8, 8)) == "0-1:2 | 2-4:3 5-7:3");
  CHECK(place(Quota(8, 1000)) == "0-1:2 | 2-4:3 5-7:3");
  config.cluster.colocated = true;
  CHECK(place(Quota(96, 4)) == "0-95:4 | ");
  CHECK(place(Quota(96, 1.5)) == "0-95:1 | ");
  CHECK(place(Quota(96, 0.5)) == "0-95:1 |  too much");
}

TEST_CASE("a quota of fewer CPUs than workers: they share so many CPUs, near the one they are on") {
  Config config;
  const auto place = [&](const CpuAllowance& allowance, int near_cpu) {
    Placement placement = PlaceWorkers(config, allowance, near_cpu);
    return Text(placement.decode) + " | " + Text(placement.prefill) +
           (placement.exceeds_quota ? " too much" : "");
  };
  CHECK(place(Quota(96, 2), 40) == "40:1 | 41:1 41:1");
  CHECK(place(Quota(96, 2.9), 40) == "40:1 | 41:1 41:1");
  CHECK(place(Quota(96, 2), 95) == "0:1 | 95:1 95:1");
  CHECK(place(Quota(96, 2), -1) == "0:1 | 1:1 1:1");
  CHECK(place(Quota(96, 1), 40) == "40:1 | 40:1 40:1");
  CHECK(place(Quota(96, 0.5), 40) == "40:1 | 40:1 40:1 too much");
  config.decode.workers = 3;
  config.prefill.workers = 4;
  CHECK(place(Quota(96, 5), 0) == "0-1:2 0-1:2 0-1:2 | 2-4:3 2-4:3 2-4:3 2-4:3");
}

TEST_CASE("CPUs and threads that the user names stand, and too many are known as such") {
  Config config;
  config.prefill.workers = 1;
  config.prefill.cpus = "8-11";
  Placement placement = PlaceWorkers(config, Quota(96, 16), 0);
  CHECK(Text(placement.decode) == "0-47:8");
  CHECK(Text(placement.prefill) == "8-11:4");
  CHECK_FALSE(placement.exceeds_quota);
  config.prefill.threads = 9;
  placement = PlaceWorkers(config, Quota(96, 16), 0);
  CHECK(Text(placement.prefill) == "8-11:9");
  CHECK(placement.exceeds_quota);
  config.prefill.threads = 0;
  config.decode.threads = 3;
  placement = PlaceWorkers(config, Quota(96, 4), 0);
  CHECK(Text(placement.decode) == "0-47:3");
  CHECK(Text(placement.prefill) == "8-11:2");
  CHECK(placement.exceeds_quota);
  CHECK(PlaceWorkers(config, Cpus({0, 1}), 0).exceeds_quota == false);
}

TEST_CASE("who may wait awake: threads with CPUs and time of their own") {
  const auto may = [](const std::string& cpus, int threads, bool exceeds_quota = false) {
    Placement placement;
    placement.decode = {{"0-1", 2}, {"2", 1}};
    placement.prefill = {{"3", 1}, {"3,4", 2}, {"5-6", 3}};
    placement.exceeds_quota = exceeds_quota;
    return MaySpin(placement, {cpus, threads});
  };
  CHECK(may("0-1", 2));
  CHECK(may("2", 1));
  CHECK_FALSE(may("3", 1));
  CHECK_FALSE(may("3,4", 2));
  CHECK_FALSE(may("5-6", 3));
  CHECK(may("5-6", 2));
  CHECK_FALSE(may("", 1));
  CHECK_FALSE(may("0-1", 2, true));
}

}  // namespace
}  // namespace baton
