// Networks of IPv4 addresses, as kvtransfer.trusted_cidrs and allowed_cidrs tell them. Plain value,
// any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace baton {

class Networks {
 public:
  struct Network {
    uint32_t address = 0, mask = 0;  // of the host's byte order
  };

  // "127.0.0.0/8,10.1.0.0/16"; an address alone is itself, nothing is no network. InvalidArgument:
  // names the setting `key` and the part that is no IPv4 network.
  static absl::StatusOr<Networks> Parse(std::string_view list, std::string_view key);
  // host or host:port. An address that is none is in no network but 0.0.0.0/0.
  bool Contain(std::string_view address) const;
  bool ContainAll() const;  // 0.0.0.0/0 is one of them
  const std::vector<Network>& all() const { return networks_; }

 private:
  std::vector<Network> networks_;
};

// The host of host:port.
std::string_view HostOf(std::string_view address);

}  // namespace baton
