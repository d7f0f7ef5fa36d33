// BATON_CHECK ends the process (abort) on a programmer error, with the place and the condition on
// stderr. BATON_DCHECK does so only in builds with the CMake option BATON_DCHECK (dev, asan, tsan),
// for conditions on hot paths; in other builds the condition is not evaluated. Never used for input
// from outside, which fails with absl::Status. Any thread.
#pragma once

namespace baton {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace baton

#define BATON_CHECK(condition)                              \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      ::baton::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#ifdef BATON_DCHECK_IS_ON
#define BATON_DCHECK(condition) BATON_CHECK(condition)
#else
#define BATON_DCHECK(condition)              \
  do {                                       \
    if (false) static_cast<void>(condition); \
  } while (false)
#endif
