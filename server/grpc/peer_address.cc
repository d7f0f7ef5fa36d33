#include "server/grpc/peer_address.h"

#include <arpa/inet.h>

#include <cstring>
#include <string>

namespace baton {
namespace {

constexpr std::string_view kV4 = "ipv4:", kV6 = "ipv6:";
constexpr unsigned char kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

uint64_t V4Number(const in_addr& v4) { return ntohl(v4.s_addr); }

}  // namespace

uint64_t AddressOfPeer(std::string_view peer) {
  std::string host(peer.substr(0, peer.rfind(':')));
  for (const std::string bracket : {"%5B", "%5D", "[", "]"})
    if (const size_t at = host.find(bracket); at != std::string::npos)
      host.erase(at, bracket.size());
  in_addr v4{};
  if (host.starts_with(kV4))
    return inet_pton(AF_INET, host.c_str() + kV4.size(), &v4) == 1 ? V4Number(v4) : 0;
  unsigned char bytes[16] = {};
  if (!host.starts_with(kV6) || inet_pton(AF_INET6, host.c_str() + kV6.size(), bytes) != 1)
    return 0;
  if (std::memcmp(bytes, kMapped, sizeof(kMapped)) == 0) {
    std::memcpy(&v4.s_addr, bytes + sizeof(kMapped), sizeof(v4.s_addr));
    return V4Number(v4);
  }
  uint64_t network = 0;  // a host has all of it
  std::memcpy(&network, bytes, sizeof(network));
  return network;
}

}  // namespace baton
