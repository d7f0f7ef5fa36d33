// Turns token ids into whole UTF-8 characters, one token at a time: one object per stream.
// Byte-exact: the joined results of all Push and Finish calls are the bytes of the tokens with each
// maximal invalid part replaced by one U+FFFD (Unicode 15, 3.9, "best practice"), never half a
// character. Holds back at most 3 bytes. Has no errors: an id without a token has no bytes. Owned
// by one thread; the Tokenizer must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace baton {

struct DetokenizerOptions {
  bool skip_special_tokens = true;
  // Special tokens that are not skipped: markers that a reader of the text looks for.
  std::vector<int32_t> shown_tokens{};
  // The first token begins a new text, so a decoder that drops the leading space drops it. False
  // when the text continues a prompt: the space of the first word belongs to the text.
  bool starts_text = false;
};

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options = {});
  // Returns the characters that this token completed, often none or several.
  std::string Push(int32_t id);
  // Ends the stream. Returns U+FFFD for an incomplete last character, else an empty string.
  std::string Finish();

  // The bytes that the last Push added to the text, perhaps half a character.
  std::string_view last_bytes() const { return last_bytes_; }
  // Bytes held back: the last ones that were added.
  size_t n_held() const { return held_.size(); }

 private:
  bool Skips(int32_t id) const;

  const Tokenizer* tokenizer_;
  DetokenizerOptions options_;
  bool at_start_;
  std::string held_;  // bytes of an unfinished character
  std::string last_bytes_;
};

// Moves the longest prefix of *bytes that no further byte can change to the end of *text, invalid
// parts as U+FFFD. What remains in *bytes (0 to 3 bytes) is the start of a character.
void MoveWholeCharacters(std::string* bytes, std::string* text);

// Returns `bytes` with each maximal invalid part replaced by one U+FFFD.
std::string ValidUtf8(std::string_view bytes);

}  // namespace baton
