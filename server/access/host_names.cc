#include "server/access/host_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace baton {
namespace {

// Without the port, the brackets of an IPv6 address and the dot of a whole name.
std::string NameIn(std::string_view host) {
  std::string_view name = host;
  if (const size_t end = name.find(']'); name.starts_with('[') && end != std::string_view::npos) {
    const bool has_more = end + 1 < name.size() && name[end + 1] != ':';
    if (!has_more) name = name.substr(1, end - 1);
  } else if (std::count(name.begin(), name.end(), ':') == 1) {
    name = name.substr(0, name.find(':'));
  }
  if (name.ends_with('.')) name.remove_suffix(1);
  return absl::AsciiStrToLower(absl::string_view(name.data(), name.size()));
}

}  // namespace

HostNames::HostNames(std::string_view bound, std::string_view listed)
    : names_({"localhost", "127.0.0.1", "::1", NameIn(bound)}) {
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(listed.data(), listed.size()), ',', absl::SkipEmpty())) {
    const absl::string_view name = absl::StripAsciiWhitespace(part);
    any_ = any_ || name == "*";
    names_.push_back(NameIn({name.data(), name.size()}));
  }
}

bool HostNames::Allows(std::string_view host) const {
  if (any_ || host.empty()) return true;
  return std::find(names_.begin(), names_.end(), NameIn(host)) != names_.end();
}

}  // namespace baton
