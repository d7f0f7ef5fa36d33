// The ports that a worker takes for KV (kvtransfer.ports): one to be connected to, and one of UCX's
// own. Plain value, any thread.
#pragma once

#include <string>
#include <string_view>

#include "common/status.h"

namespace baton {

struct PortRange {
  int first = 0, last = 0;  // 0: the system picks

  // "0" or "7100-7199". InvalidArgument: anything else; a port alone is too few.
  static absl::StatusOr<PortRange> Parse(std::string_view text);
  std::string ToString() const;
};

}  // namespace baton
