// What a chaos client thinks of an exchange, judged by the answer of an undisturbed run.
#pragma once

#include <string>

#include "tests/e2e/chaos/exchange.h"

namespace baton {

enum class Verdict {
  kExact,       // every byte, one end
  kLeft,        // the client went away; what it had got was right
  kCutOff,      // the server gave up a client that did not read; what it had got was right
  kRefused,     // 429 or 503 before anything began
  kLost,        // an error, no end, or an end too early
  kDuplicated,  // more tokens than there are, a second end, or words after the end
  kWrong,       // another token, text, digest or reason
};
inline constexpr int kVerdicts = 7;

const char* VerdictName(Verdict verdict);
bool IsViolation(Verdict verdict);

// why: what differed, for the reader of a failure.
Verdict Judge(const Exchange& exchange, const Manner& manner, const Answer& expected,
              std::string* why);

}  // namespace baton
