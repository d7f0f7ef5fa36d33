#include "text/detokenizer.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Part {
  size_t bytes;  // of this character, or of this maximal invalid part
  bool valid;
  bool complete;  // false: the bytes end inside a possible character
};

// Decodes by the table of well-formed sequences, Unicode 15 table 3-7: the number of bytes for a
// lead byte, and the range of the second byte (the others are 80..BF).
Part FirstPart(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {1, true, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, true};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {i, false, false};
    const bool fits = i == 1 ? at(i) >= low && at(i) <= high : at(i) >= 0x80 && at(i) <= 0xBF;
    if (!fits) return {i, false, true};
  }
  return {length, true, true};
}

}  // namespace

void MoveWholeCharacters(std::string* bytes, std::string* text) {
  std::string_view rest = *bytes;
  while (!rest.empty()) {
    const Part part = FirstPart(rest);
    if (!part.complete) break;
    text->append(part.valid ? rest.substr(0, part.bytes) : kReplacement);
    rest.remove_prefix(part.bytes);
  }
  bytes->erase(0, bytes->size() - rest.size());
}

std::string ValidUtf8(std::string_view bytes) {
  std::string rest(bytes), text;
  MoveWholeCharacters(&rest, &text);
  if (!rest.empty()) text.append(kReplacement);
  return text;
}

Detokenizer::Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), at_start_(options_.starts_text) {}

bool Detokenizer::Skips(int32_t id) const {
  if (!tokenizer_->IsToken(id)) return true;
  if (!options_.skip_special_tokens || !tokenizer_->IsSpecial(id)) return false;
  return std::find(options_.shown_tokens.begin(), options_.shown_tokens.end(), id) ==
         options_.shown_tokens.end();
}

std::string Detokenizer::Push(int32_t id) {
  std::string text;
  last_bytes_.clear();
  if (Skips(id)) return text;
  std::string_view bytes = tokenizer_->TokenBytes(id);
  if (at_start_ && tokenizer_->leading_space() == LeadingSpace::kStripAllFirst) {
    std::remove_copy(bytes.begin(), bytes.end(), std::back_inserter(last_bytes_), ' ');
    at_start_ = false;
  } else {
    if (at_start_ && tokenizer_->leading_space() == LeadingSpace::kStripOne &&
        bytes.starts_with(' '))
      bytes.remove_prefix(1), at_start_ = false;
    if (!bytes.empty()) at_start_ = false;
    last_bytes_ = bytes;
  }
  held_ += last_bytes_;
  MoveWholeCharacters(&held_, &text);
  return text;
}

std::string Detokenizer::Finish() {
  const bool unfinished = !held_.empty();
  held_.clear();
  return std::string(unfinished ? kReplacement : "");
}

}  // namespace baton
