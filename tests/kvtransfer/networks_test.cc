#include "kvtransfer/protocol/networks.h"

#include "kvtransfer/protocol/port_range.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

bool Contains(const char* list, const char* address) {
  const auto networks = Networks::Parse(list, "kvtransfer.trusted_cidrs");
  REQUIRE(networks.ok());
  return networks->Contain(address);
}

TEST_CASE("networks contain their addresses, with a port or without") {
  CHECK(Contains("127.0.0.0/8", "127.3.2.1:9"));
  CHECK(Contains("10.1.0.0/16, 192.168.7.0/24", "192.168.7.255"));
  CHECK(Contains("10.1.2.3", "10.1.2.3:7100"));
  CHECK(Contains("10.1.2.3/16", "10.1.9.9:1"));  // bits behind the network do not matter
  CHECK_FALSE(Contains("10.1.0.0/16", "10.2.0.0:1"));
  CHECK_FALSE(Contains("10.1.2.3", "10.1.2.4"));
  CHECK_FALSE(Contains("", "127.0.0.1"));
  CHECK_FALSE(Contains("10.0.0.0/1", "nonsense:1"));
  CHECK(Contains("0.0.0.0/0", "nonsense"));
}

TEST_CASE("what is no network or no range of ports is refused by name") {
  for (const char* list : {"10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8", "::1", "10.0.0.0/", "a"}) {
    const absl::Status status = Networks::Parse(list, "kvtransfer.trusted_cidrs").status();
    CHECK(status.message().find("kvtransfer.trusted_cidrs") != absl::string_view::npos);
  }
  for (const char* text : {"", "7100", "7100-7100", "7101-7100", "0-5", "1-65536", "a-b", "-5"}) {
    const absl::Status status = PortRange::Parse(text).status();
    CHECK(status.message().find("kvtransfer.ports") != absl::string_view::npos);
  }
  CHECK(PortRange::Parse("7100-7199")->last == 7199);
  CHECK(PortRange::Parse("0")->ToString() == "0");
}

}  // namespace
}  // namespace baton
