// The exception of a simulated run when an invariant is broken.
#pragma once

#include <stdexcept>
#include <string>

#include "absl/strings/str_format.h"

namespace baton::sim {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename... Args>
void Require(bool condition, const absl::FormatSpec<Args...>& format, const Args&... args) {
  if (!condition) throw Violation(absl::StrFormat(format, args...));
}

}  // namespace baton::sim
