// Text to token ids and back, as the Hugging Face `tokenizers` library does it from a model's
// tokenizer.json. Every id equals Python's; normalizers, pre-tokenizers, models and decoders are
// the library's own (src/text/ffi), only the table of what bytes each token stands for is ours.
// Immutable after load, all methods const: any thread, no locks of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

struct NativeTokenizer;  // the Rust object behind it

// How a decoder treats the space that a SentencePiece-like tokenizer puts before the first word.
enum class LeadingSpace {
  kKeep,
  kStripOne,       // one space at the start of the whole text (decoder Strip)
  kStripAllFirst,  // every space that stands for a metaspace in the first token (decoder Metaspace)
};

class Tokenizer {
 public:
  // `folder` holds tokenizer.json. Errors: NotFound or InvalidArgument, naming the file.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromFolder(const std::string& folder);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromFile(const std::string& path);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(std::string_view json);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // `text` is UTF-8, else InvalidArgument. add_special_tokens: what the tokenizer's post-processor
  // adds (begin of text); a rendered chat has it already, a plain prompt has not. Text that spells
  // a special token becomes that token, as in transformers. Cost: about 0.6 s per MB; no
  // truncation.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const;

  // The whole text of `ids` at once, as the library decodes it. Ids without a token stand for
  // nothing. Streams use Detokenizer: byte-fallback decoders here turn each byte of an invalid run
  // into U+FFFD.
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // One more than the greatest id that has a token. A model's logits may be wider (padding).
  int32_t vocab_size() const { return static_cast<int32_t>(ends_.size()); }
  // The bytes the token stands for, maybe part of a character; empty for an id without a token.
  std::string_view TokenBytes(int32_t id) const;
  bool IsToken(int32_t id) const {
    return InRange(id) && (flags_[static_cast<size_t>(id)] & kExists) != 0;
  }
  // Special: an added token marked so (begin of text, end of turn), which skip_special_tokens
  // hides.
  bool IsSpecial(int32_t id) const {
    return InRange(id) && (flags_[static_cast<size_t>(id)] & kSpecial) != 0;
  }
  // The id of a token as tokenizer.json spells it ("<|im_end|>"), if there is one.
  std::optional<int32_t> IdOf(std::string_view token) const;
  // The most bytes of one token: a prompt of more than tokens * this cannot fit in so many tokens.
  size_t longest_token_bytes() const { return longest_; }
  LeadingSpace leading_space() const { return leading_space_; }

 private:
  static constexpr uint8_t kExists = 1;
  static constexpr uint8_t kSpecial = 2;

  Tokenizer() = default;
  bool InRange(int32_t id) const { return id >= 0 && id < vocab_size(); }

  NativeTokenizer* native_ = nullptr;
  std::string bytes_;           // the bytes of all tokens, in order of id
  std::vector<uint32_t> ends_;  // token id ends at ends_[id] in bytes_ and starts where id - 1 ends
  std::vector<uint8_t> flags_;
  size_t longest_ = 0;
  LeadingSpace leading_space_ = LeadingSpace::kKeep;
};

}  // namespace baton
