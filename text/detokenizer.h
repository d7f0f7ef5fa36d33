// Token ids in, whole UTF-8 characters out, one token at a time: one object per stream.
// Byte-exact: all that was pushed and finished, joined, is the bytes of the tokens with each
// maximal invalid part replaced by one U+FFFD (Unicode 15, 3.9, "best practice"), never half a
// character. At most 3 bytes are held back. No error is possible: an id without a token stands for
// nothing. Owned by one thread; the Tokenizer must outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace baton {

struct DetokenizerOptions {
  bool skip_special_tokens = true;
  // The first token begins a text of its own, so a decoder that drops the leading space drops it.
  // False for what continues a prompt: its first word's space belongs to the text.
  bool starts_text = false;
};

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options = {});
  // The characters this token completed; often empty or several.
  std::string Push(int32_t id);
  // The end of the stream: a character begun and never completed comes out as U+FFFD.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  DetokenizerOptions options_;
  bool at_start_;
  std::string held_;  // bytes of an unfinished character
};

// Moves the longest prefix of *bytes that no further byte can change to the end of *text, invalid
// parts as U+FFFD. What remains in *bytes (0 to 3 bytes) is the start of a character.
void MoveWholeCharacters(std::string* bytes, std::string* text);

// `bytes` with each maximal invalid part replaced by one U+FFFD.
std::string ValidUtf8(std::string_view bytes);

}  // namespace baton
