// RDMA devices as the kernel shows them, in folders made up here: no machine of the tests has one.
#include "kvtransfer/links/rdma_port.h"

#include <arpa/inet.h>

#include <filesystem>

#include "tests/support/temp_folder.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

// Two ports of a RoCE card, of which the second has 10.20.0.3, and an InfiniBand card with ib0.
class Devices {
 public:
  Devices() {
    Write("mlx5_0/ports/1/state", "4: ACTIVE");
    Write("mlx5_0/ports/1/link_layer", "Ethernet");
    Write("mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0a00:27ff:fe00:0001");
    Write("mlx5_0/ports/1/gid_attrs/types/0", "RoCE v2");
    Write("mlx5_0/ports/2/state", "4: ACTIVE");
    Write("mlx5_0/ports/2/link_layer", "Ethernet");
    for (const char* index : {"2", "3"})
      Write(std::string("mlx5_0/ports/2/gids/") + index, "0000:0000:0000:0000:0000:ffff:0a14:0003");
    Write("mlx5_0/ports/2/gid_attrs/types/2", "IB/RoCE v1");
    Write("mlx5_0/ports/2/gid_attrs/types/3", "RoCE v2");
    Write("mlx5_1/ports/1/state", "4: ACTIVE");
    Write("mlx5_1/ports/1/link_layer", "InfiniBand");
    Write("mlx5_1/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0010:1234");
    Write("mlx5_1/device/net/ib0/mtu", "4092");
  }
  void Write(const std::string& file, const std::string& line) {
    std::filesystem::create_directories(std::filesystem::path(folder_.file(file)).parent_path());
    folder_.Write(file, line + "\n");
  }
  absl::StatusOr<RdmaPort> Find(const char* host, const std::string& device) const {
    in_addr address{};
    REQUIRE(::inet_pton(AF_INET, host, &address) == 1);
    return FindRdmaPort(address, device, folder_.path());
  }

 private:
  TempFolder folder_;
};

TEST_CASE("the port with the address as a GID of RoCE v2 is taken, with the index of that GID") {
  const auto port = Devices().Find("10.20.0.3", "eth2");
  INFO(port.status());
  REQUIRE(port.ok());
  CHECK(port->name == "mlx5_0:2");
  CHECK(port->gid_index == 3);
}

TEST_CASE("the address of ib0 means the InfiniBand port that carries it, whose GID UCX chooses") {
  const auto port = Devices().Find("192.168.9.4", "ib0");
  INFO(port.status());
  REQUIRE(port.ok());
  CHECK(port->name == "mlx5_1:1");
  CHECK(port->gid_index == -1);
}

TEST_CASE("of an InfiniBand card with two ports the one of the network device is taken") {
  Devices devices;
  for (const char* number : {"1", "2"}) {
    const std::string port = std::string("mlx4_0/ports/") + number;
    devices.Write(port + "/state", *number == '1' ? "1: DOWN" : "4: ACTIVE");
    devices.Write(port + "/link_layer", "InfiniBand");
  }
  devices.Write("mlx4_0/device/net/ib4/dev_port", "0");
  devices.Write("mlx4_0/device/net/ib5/dev_port", "1");
  const auto second = devices.Find("192.168.9.5", "ib5");
  INFO(second.status());
  REQUIRE(second.ok());
  CHECK(second->name == "mlx4_0:2");
  CHECK(devices.Find("192.168.9.6", "ib4").status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("an address of no device, and a port that is down, are refused by name") {
  Devices devices;
  const absl::Status foreign = devices.Find("10.20.0.4", "eth0").status();
  CHECK(foreign.code() == absl::StatusCode::kNotFound);
  for (const char* part : {"10.20.0.4", "eth0", "mlx5_0:1, mlx5_0:2, mlx5_1:1", "transport to tcp"})
    CHECK_THAT(std::string(foreign.message()), Catch::Contains(part));
  devices.Write("mlx5_0/ports/2/state", "1: DOWN");
  const absl::Status down = devices.Find("10.20.0.3", "eth2").status();
  CHECK(down.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(down.message()), Catch::Contains("mlx5_0:2 is not active (1: DOWN)"));
}

}  // namespace
}  // namespace baton
