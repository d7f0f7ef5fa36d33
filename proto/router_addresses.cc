#include "proto/router_addresses.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/unix_control.h"

namespace baton {
namespace {

// Splits host:port; the host is without brackets.
std::pair<std::string, std::string> Parts(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return {std::string(address), ""};
  std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {std::string(host), std::string(address.substr(colon + 1))};
}

bool IsNumber(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  return ::inet_pton(AF_INET, host.c_str(), &v4) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

bool IsHost(std::string_view address, const std::string& host) {
  const bool has_colon = host.find(':') != std::string::npos;
  return !host.empty() && host.find('[') == std::string::npos &&
         (!has_colon || address.starts_with('['));
}

bool IsPort(const std::string& text) {
  int port = 0;
  return absl::SimpleAtoi(text, &port) && port > 0 && port <= 65535;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseRouterAddresses(std::string_view text) {
  std::vector<std::string> addresses;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(std::string(text), ','))) {
    const std::string address(absl::StripAsciiWhitespace(part));
    if (!IsUnixAddress(address)) {
      const auto [host, port] = Parts(address);
      if (!IsHost(address, host) || !IsPort(port))
        return absl::InvalidArgumentError(absl::StrCat(
            "cluster.router: \"", address,
            "\" is neither HOST:PORT nor unix:PATH; an IPv6 address stands in brackets, "
            "and between several there is a comma"));
    }
    addresses.push_back(address);
  }
  return addresses;
}

bool IsNamedAddress(std::string_view address) {
  return !IsUnixAddress(address) && !IsNumber(Parts(address).first);
}

absl::StatusOr<std::vector<std::string>> ResolveAddress(const std::string& address) {
  const auto [host, port] = Parts(address);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;  // IPv6 only where this machine has it
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0)
    return absl::UnavailableError(
        absl::StrCat("the name ", host, " of cluster.router is unknown: ", ::gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  std::set<std::string> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    char number[INET6_ADDRSTRLEN] = {};
    if (::getnameinfo(at->ai_addr, at->ai_addrlen, number, sizeof(number), nullptr, 0,
                      NI_NUMERICHOST) != 0)
      continue;
    addresses.insert(at->ai_family == AF_INET6 ? absl::StrCat("[", number, "]:", port)
                                               : absl::StrCat(number, ":", port));
  }
  return std::vector<std::string>(addresses.begin(), addresses.end());
}

}  // namespace baton
