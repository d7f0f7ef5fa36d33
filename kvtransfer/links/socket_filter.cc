#include "kvtransfer/links/socket_filter.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr uint32_t kSourceAddress = static_cast<uint32_t>(SKF_NET_OFF) + 12;  // in an IPv4 header
constexpr uint32_t kWhole = 0xffffffff, kNothing = 0;  // bytes of a packet that come through

bool ListensAt(int socket, const in_addr& host) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  sockaddr_in address{};
  socklen_t address_length = sizeof(address);
  return ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0 &&
         ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &address_length) == 0 &&
         address.sin_family == AF_INET && address.sin_addr.s_addr == host.s_addr;
}

// Classic BPF: compares a packet's source address with each network.
std::vector<sock_filter> ProgramFor(const std::vector<Networks::Network>& networks) {
  std::vector<sock_filter> program = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSourceAddress),
                                      BPF_STMT(BPF_ST, 0)};
  for (const Networks::Network& network : networks) {
    program.push_back(BPF_STMT(BPF_LD | BPF_MEM, 0));
    program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, network.mask));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, network.address, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, kWhole));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, kNothing));
  return program;
}

}  // namespace

std::vector<int> ListenersAt(const in_addr& host) {
  std::vector<int> listeners;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    int socket = -1;
    if (absl::SimpleAtoi(entry.path().filename().string(), &socket) && ListensAt(socket, host))
      listeners.push_back(socket);
  }
  std::sort(listeners.begin(), listeners.end());
  return listeners;
}

absl::Status AdmitOnly(const Networks& networks, const in_addr& host, int socket) {
  std::vector<Networks::Network> all = networks.all();
  all.push_back({.address = ntohl(host.s_addr), .mask = 0xffffffff});
  std::vector<sock_filter> program = ProgramFor(all);
  const sock_fprog filter{.len = static_cast<uint16_t>(program.size()), .filter = program.data()};
  if (program.size() <= BPF_MAXINSNS &&
      ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0)
    return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("kvtransfer.allowed_cidrs: the kernel takes no filter "
                   "of ",
                   all.size(), " networks (", std::strerror(errno), ")"));
}

}  // namespace baton
