// CHECK ends the process on a programmer error, with the place and the condition. DCHECK does so
// only in builds with BATON_DCHECK (dev, asan, tsan), for conditions on hot paths. Never used for
// input from outside, which fails with absl::Status.
#pragma once

namespace baton {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace baton

#define CHECK(condition)                                    \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      ::baton::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#ifdef BATON_DCHECK
#define DCHECK(condition) CHECK(condition)
#else
#define DCHECK(condition)                    \
  do {                                       \
    if (false) static_cast<void>(condition); \
  } while (false)
#endif
