// The transports that UCX takes, as UCX names them.
#include "kvtransfer/links/ucx_lanes.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("a link of the loopback address takes tcp of the loopback device, and nothing else") {
  const auto lanes = UcxLanes("127.0.0.1");
  INFO(std::string(lanes.status().message()));
  REQUIRE(lanes.ok());
  CHECK(*lanes == std::vector<std::string>{"tcp/lo"});
}

TEST_CASE("an address of another machine has no lanes here") {
  CHECK(UcxLanes("192.0.2.1").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(UcxLanes("no address").status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
