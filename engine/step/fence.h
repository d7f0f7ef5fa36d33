// A point of a backend's timeline (Backend::submitted). Numbers rise with every submission; 0 is
// always reached. A plain value: it may be kept, compared and given to other threads.
#pragma once

#include <compare>
#include <cstdint>

namespace baton {

struct Fence {
  uint64_t at = 0;
  auto operator<=>(const Fence&) const = default;
};

}  // namespace baton
