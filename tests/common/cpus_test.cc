#include "common/cpus.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("a thread stays on the CPUs it was given, and cannot have others") {
  const std::vector<int> own = OwnCpus();
  REQUIRE(!own.empty());
  REQUIRE(StayOnCpus({own.back()}));
  CHECK(OwnCpus() == std::vector<int>{own.back()});
  CHECK_FALSE(StayOnCpus({}));
  CHECK(StayOnCpus(own));
}

TEST_CASE("the same CPUs of a machine are one group, whoever asks; unknown ones none") {
  CHECK(CpuGroup({0, 1}) == CpuGroup({0, 1}));
  CHECK(CpuGroup({0, 1}) != 0);
  CHECK(CpuGroup({0, 1}) != CpuGroup({1}));
  CHECK(CpuGroup({0, 1}) != CpuGroup({0, 11}));
  CHECK(CpuGroup({}) == 0);
}

}  // namespace
}  // namespace baton
