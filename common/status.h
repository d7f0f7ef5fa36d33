// absl::Status with the two macros that pass it on. The outside world (input, files, peers) fails
// with a Status that says what, where, and what to change; a programmer's error fails a BATON_CHECK
// (common/check.h).
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define BATON_CONCAT_INNER(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_INNER(a, b)

// RETURN_IF_ERROR(F()): returns the Status of F() if it is an error. F returns no StatusOr.
#define RETURN_IF_ERROR(expression)                                           \
  do {                                                                        \
    if (::absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): x = value of F(), or return F()'s error. Expands to several
// statements, so the body of an `if` needs braces.
#define ASSIGN_OR_RETURN(lhs, expression) \
  ASSIGN_OR_RETURN_INNER(BATON_CONCAT(statusor_, __LINE__), lhs, expression)
#define ASSIGN_OR_RETURN_INNER(statusor, lhs, expression)  \
  auto statusor = (expression);                            \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = *std::move(statusor)
