#include "kvtransfer/protocol/port_range.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton {

absl::StatusOr<PortRange> PortRange::Parse(std::string_view text) {
  if (text == "0") return PortRange();
  const std::pair<std::string, std::string> ends =
      absl::StrSplit(std::string(text), absl::MaxSplits('-', 1));
  PortRange range;
  if (!absl::SimpleAtoi(ends.first, &range.first) || !absl::SimpleAtoi(ends.second, &range.last) ||
      range.first < 1 || range.last <= range.first || range.last > 65535)
    return absl::InvalidArgumentError(
        absl::StrCat("kvtransfer.ports: \"", std::string(text),
                     "\" is no range of ports such as 7100-7199 (two for each worker of the "
                     "machine), and not 0"));
  return range;
}

std::string PortRange::ToString() const {
  return first == 0 ? "0" : first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
}

}  // namespace baton
