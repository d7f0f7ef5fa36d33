// The address of a call's client, out of gRPC's text for it. Pure function, any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

// ClientId::address of a peer such as ipv4:127.0.0.1:5000, ipv6:[::1]:5000 or ipv6:%5B::1%5D:5000,
// the same as for HTTP; 0: not such an address.
uint64_t AddressOfPeer(std::string_view peer);

}  // namespace baton
