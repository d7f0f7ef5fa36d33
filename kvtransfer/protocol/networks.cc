#include "kvtransfer/protocol/networks.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton {
namespace {

std::optional<uint32_t> Ipv4(std::string_view text) {
  in_addr parsed{};
  if (::inet_pton(AF_INET, std::string(text).c_str(), &parsed) != 1) return std::nullopt;
  return ntohl(parsed.s_addr);
}

}  // namespace

std::string_view HostOf(std::string_view address) { return address.substr(0, address.rfind(':')); }

absl::StatusOr<Networks> Networks::Parse(std::string_view list, std::string_view key) {
  Networks networks;
  for (const auto& part : absl::StrSplit(std::string(list), ',', absl::SkipWhitespace())) {
    const std::string text(absl::StripAsciiWhitespace(part));
    const std::pair<std::string, std::string> sides = absl::StrSplit(text, absl::MaxSplits('/', 1));
    const std::optional<uint32_t> address = Ipv4(sides.first);
    int bits = 32;
    const bool has_bits = text.find('/') != std::string::npos;
    if (!address || (has_bits && (!absl::SimpleAtoi(sides.second, &bits) || bits < 0 || bits > 32)))
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(key), ": \"", text,
                       "\" is no IPv4 network; write them as in 10.1.0.0/16,127.0.0.0/8"));
    const uint32_t mask = bits == 0 ? 0 : ~uint32_t{0} << (32 - bits);
    networks.networks_.push_back({*address & mask, mask});
  }
  return networks;
}

bool Networks::ContainAll() const {
  return std::any_of(networks_.begin(), networks_.end(),
                     [](const Network& network) { return network.mask == 0; });
}

bool Networks::Contain(std::string_view address) const {
  if (ContainAll()) return true;
  const std::optional<uint32_t> host = Ipv4(HostOf(address));
  return std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) {
    return host && (*host & network.mask) == network.address;
  });
}

}  // namespace baton
