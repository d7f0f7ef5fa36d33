#include "common/cpus.h"

#include <catch2/catch.hpp>
#include <numeric>

namespace baton {
namespace {

CpuAllowance Allowance(int n_cpus, std::optional<CpuQuota> quota) {
  CpuAllowance allowance;
  allowance.cpus.resize(static_cast<size_t>(n_cpus));
  std::iota(allowance.cpus.begin(), allowance.cpus.end(), 0);
  allowance.quota = quota;
  return allowance;
}

CpuAllowance WithQuota(int n_cpus, double cpus) {
  return Allowance(n_cpus, CpuQuota{.cpus = cpus, .group = 7});
}

TEST_CASE("a thread stays on the CPUs it was given, and cannot have others") {
  const std::vector<int> own = OwnCpus();
  REQUIRE(!own.empty());
  REQUIRE(StayOnCpus({own.back()}));
  CHECK(OwnCpus() == std::vector<int>{own.back()});
  CHECK(CurrentCpu() == own.back());
  CHECK(OwnCpuAllowance().threads() == 1);
  CHECK_FALSE(StayOnCpus({}));
  CHECK_FALSE(StayOnCpus({1 << 20}));
  CHECK(StayOnCpus(own));
}

TEST_CASE("as many threads as CPUs, or as whole CPUs in the quota, and always one") {
  CHECK(Allowance(96, std::nullopt).threads() == 96);
  CHECK(Allowance(0, std::nullopt).threads() == 1);
  CHECK(WithQuota(96, 4).threads() == 4);
  CHECK(WithQuota(96, 3.9999).threads() == 4);  // 133330 of 33333 us
  CHECK(WithQuota(96, 3.9).threads() == 3);
  CHECK(WithQuota(96, 1.5).threads() == 1);
  CHECK(WithQuota(96, 0.25).threads() == 1);
  CHECK(WithQuota(2, 4).threads() == 2);
  CHECK(WithQuota(2, 2).threads() == 2);
  CHECK(WithQuota(0, 4).threads() == 1);
}

TEST_CASE("a quota that is no less than the CPUs bounds nothing") {
  CHECK(WithQuota(96, 4).is_bounded_by_quota());
  CHECK(WithQuota(2, 1.5).is_bounded_by_quota());
  CHECK_FALSE(WithQuota(2, 2).is_bounded_by_quota());
  CHECK_FALSE(WithQuota(2, 1.9999).is_bounded_by_quota());
  CHECK_FALSE(Allowance(2, std::nullopt).is_bounded_by_quota());
  CHECK(WithQuota(96, 1.5).exceeds_quota(2));
  CHECK_FALSE(WithQuota(96, 1.5).exceeds_quota(1));
  CHECK(WithQuota(1, 0.5).exceeds_quota(1));
  CHECK_FALSE(Allowance(1, std::nullopt).exceeds_quota(100));
}

TEST_CASE("who has the same CPUs of a machine, or the same quota, is of one group") {
  const auto on = [](std::vector<int> cpus) {
    return CpuAllowance{.cpus = std::move(cpus), .quota = std::nullopt}.group();
  };
  CHECK(on({0, 1}) == on({0, 1}));
  CHECK(on({0, 1}) != 0);
  CHECK(on({0, 1}) != on({1}));
  CHECK(on({0, 1}) != on({0, 11}));
  CHECK(on({}) == 0);
  // Two containers with CPUs of their own, or with one each.
  const auto under = [](std::vector<int> cpus, CpuQuota quota) {
    return CpuAllowance{.cpus = std::move(cpus), .quota = quota}.group();
  };
  CHECK(under({0, 1, 2}, {2, 7}) == under({3, 4, 5}, {2, 7}));
  CHECK(under({0, 1, 2}, {2, 7}) != under({0, 1, 2}, {2, 8}));
  CHECK(under({0, 1, 2}, {2, 7}) != on({0, 1, 2}));
  CHECK(under({0, 1, 2}, {3, 7}) == on({0, 1, 2}));
  CHECK(under({0, 1, 2}, {2, 0}) == 0);
}

TEST_CASE("what threads take of their CPUs or their quota") {
  CHECK(Allowance(4, std::nullopt).share(2) == Approx(0.5));
  CHECK(Allowance(0, std::nullopt).share(2) == 0);
  CHECK(WithQuota(96, 4).share(2) == Approx(0.5));
  CHECK(WithQuota(96, 1.5).share(1) == Approx(1 / 1.5));
  CHECK(WithQuota(2, 8).share(1) == Approx(0.5));
}

TEST_CASE("in words") {
  CHECK(Allowance(2, std::nullopt).Text() == "2 CPUs by affinity, no quota");
  CHECK(WithQuota(1, 1.5).Text() == "1 CPU by affinity, quota 1.5 CPUs");
}

}  // namespace
}  // namespace baton
