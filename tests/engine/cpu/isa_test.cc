// Errors on a machine that cannot run the engine, or a path of the engine.
#include <algorithm>
#include <catch2/catch.hpp>

#include "engine/cpu/machine/isa.h"

namespace baton {

using Catch::Matchers::Contains;

TEST_CASE("a machine without AVX2 is told the features it lacks") {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    const absl::Status status = CheckIsaAmong(isa, {}, "Old CPU");
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(std::string(status.message()),
               Contains("this CPU (Old CPU) lacks AVX2, FMA and F16C"));
  }
}

TEST_CASE("a path that a machine lacks is an error that names it and those there are") {
  const std::vector<Isa> supported{Isa::kAvx2, Isa::kAvx512};
  CHECK(CheckIsaAmong(Isa::kAvx512, supported, "CPU").ok());
  CHECK_THAT(std::string(CheckIsaAmong(Isa::kAmx, supported, "CPU").message()),
             Contains("this machine (CPU) cannot run the CPU path amx; it supports avx2, avx512"));
}

TEST_CASE("this machine has what it says") {
  RequestAmxPermission();
  const std::vector<Isa> supported = SupportedIsas();
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    const bool is_there = std::find(supported.begin(), supported.end(), isa) != supported.end();
    CHECK(CheckIsaSupported(isa).ok() == is_there);
    if (isa == Isa::kAmx) CHECK_FALSE((is_there && IsAmxRefused()));
  }
}

}  // namespace baton
