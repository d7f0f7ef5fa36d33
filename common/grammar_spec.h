// The grammar of a request as text, from which the router, the prefill worker and the decode worker
// compile the same Grammar (text/grammar.h) with the model's tokenizer. Plain values: they travel
// on the control wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace baton {

// The values are those of the control wire and of the Rust library: never renumbered.
enum class GrammarKind : int32_t {
  kNone = 0,
  kJsonObject = 1,  // any JSON object; no text
  kJsonSchema = 2,  // a JSON schema
  kRegex = 3,       // a regular expression that the whole text matches
  kChoice = 4,      // a JSON array of strings, one of which is the text
  kLark = 5,        // a Lark grammar with a rule "start"
  kParts = 6,       // a JSON array of parts that follow each other (docs/GRAMMAR.md)
};
inline constexpr GrammarKind kLastGrammarKind = GrammarKind::kParts;

// Bytes of a grammar's text. Clients' texts have this limit, too, so both are one.
inline constexpr size_t kMaxGrammarBytes = 64 << 10;

struct GrammarSpec {
  GrammarKind kind = GrammarKind::kNone;
  std::string text{};
  bool operator==(const GrammarSpec&) const = default;
};

}  // namespace baton
