// The floating-point control word of numerics v1 (docs/NUMERICS.md N10): round to nearest even,
// denormals flushed on input and output, no traps. The control word is a property of a thread.
#pragma once

#include <xmmintrin.h>

namespace baton {

inline constexpr unsigned kNumericsMxcsr = 0x9fc0;     // all exceptions masked, FTZ, DAZ
inline constexpr unsigned kMxcsrStickyFlags = 0x003f;  // flags that operations set

inline void SetNumericsMxcsr() { _mm_setcsr(kNumericsMxcsr); }
inline bool HasNumericsMxcsr() { return (_mm_getcsr() & ~kMxcsrStickyFlags) == kNumericsMxcsr; }

// Sets the control word for a scope, then restores the thread's own.
class NumericsMxcsrScope {
 public:
  NumericsMxcsrScope() : saved_(_mm_getcsr()) { SetNumericsMxcsr(); }
  ~NumericsMxcsrScope() { _mm_setcsr(saved_); }
  NumericsMxcsrScope(const NumericsMxcsrScope&) = delete;
  NumericsMxcsrScope& operator=(const NumericsMxcsrScope&) = delete;

 private:
  unsigned saved_;
};

}  // namespace baton
