// The verdict of a chaos client on an exchange, compared with the answer of a run without faults.
#pragma once

#include <string>

#include "tests/e2e/chaos/exchange.h"

namespace baton {

enum class Verdict {
  kExact,       // every byte, one end
  kLeft,        // the client closed the connection; all it had got was right
  kCutOff,      // the server ended the stream of a client that did not read; all before was right
  kRefused,     // 429 or 503 before the first byte
  kLost,        // an error, no end, or an end too early
  kDuplicated,  // more tokens than expected, a second end, or bytes after the end
  kWrong,       // another token, text, digest or reason
};
inline constexpr int kVerdicts = 7;

const char* VerdictName(Verdict verdict);
bool IsViolation(Verdict verdict);

// why: the difference, for the reader of a failure.
Verdict Judge(const Exchange& exchange, const Manner& manner, const Answer& expected,
              std::string* why);

}  // namespace baton
