// The transports that UCX takes, as UCX names them, and the refusal of one that is not here.
#include "kvtransfer/links/ucx_lanes.h"

#include "kvtransfer/links/ucx_link.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

using Lanes = std::vector<std::string>;

TEST_CASE("a link of the loopback address takes the transport that was set") {
  const auto [transport, expected] = GENERATE(table<KvTransport, Lanes>({
      {KvTransport::kTcp, {"tcp/lo"}},
      {KvTransport::kAuto, {"tcp/lo"}},  // no RDMA device has this address
      {KvTransport::kShm, {"tcp/lo", "cma/memory"}},
  }));
  const auto lanes = UcxLanes("127.0.0.1", transport);
  INFO(NameOf(transport) << " " << lanes.status());
  REQUIRE(lanes.ok());
  CHECK(*lanes == expected);
}

TEST_CASE("RDMA is refused at an address without it, with what is missing and what to change") {
  const auto link = MakeUcxLink("127.0.0.1", {.transport = KvTransport::kRdma});
  CHECK(link.status().code() == absl::StatusCode::kNotFound);
  const std::string message(link.status().message());
  for (const char* part : {"127.0.0.1", "of lo", "/sys/class/infiniband", "cluster.worker_host",
                           "kvtransfer.transport to tcp"})
    CHECK_THAT(message, Catch::Contains(part));
}

TEST_CASE("an address of another machine has no lanes here") {
  for (const KvTransport transport : {KvTransport::kTcp, KvTransport::kRdma, KvTransport::kShm}) {
    CHECK(UcxLanes("192.0.2.1", transport).status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(UcxLanes("no address", transport).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace baton
