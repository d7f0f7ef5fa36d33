// Text to token ids and back, as the Hugging Face `tokenizers` library does it from a model's
// tokenizer.json. Every id equals Python's. Byte-pair encoding behind the normalizers and
// pre-tokenizers that most models have is Baton's (text/ffi/src/byte_pair_encoder.rs), any other is
// the library's, and so are the decoders. Immutable after load, all methods const: any thread, no
// locks.
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
#include "absl/time/time.h"
#include "text/prompt_text.h"
#include "text/segment_cache.h"

namespace baton {

struct NativeTokenizer;  // the Rust object behind it

// The treatment by a decoder of the space that a SentencePiece-like tokenizer puts before the first
// word.
enum class LeadingSpace {
  kKeep,
  kStripOne,       // one space at the start of the whole text (decoder Strip)
  kStripAllFirst,  // all spaces that stand for a metaspace in the first token (decoder Metaspace)
};

class Tokenizer {
 public:
  // Reads tokenizer.json of `folder`, a file, or the text of one. NotFound: there is no such file;
  // InvalidArgument: not a tokenizer.json that the library reads. Errors name the file, if any.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromFolder(const std::string& folder);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromFile(const std::string& path);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(std::string_view json);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Returns the ids of `text`: UTF-8, else InvalidArgument. add_special_tokens: what the
  // tokenizer's post-processor adds (begin of text); a rendered chat has it already, a plain prompt
  // has not. Text that spells a special token becomes that token, as in transformers. Takes about
  // 0.1 s per MB of prose; never truncates.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const;

  // Returns the ids of a prompt, of whose special tokens only those that count are found; what is
  // between them is tokenized as in any text, and a text without a spelling that does not count
  // has the ids of the function above. Takes as long, or with a cache of this tokenizer as long as
  // what the cache does not have, and about 3 ms per MB. DeadlineExceeded: it takes longer than
  // `limit`, which is looked at between special tokens and between the stages of the work.
  absl::StatusOr<std::vector<int32_t>> Encode(
      const PromptText& prompt, bool add_special_tokens, CachedSegments cached = {},
      absl::Duration limit = absl::InfiniteDuration()) const;

  // Returns what the library itself makes of `text`, the same in several times the time and memory:
  // the measure of the functions above.
  absl::StatusOr<std::vector<int32_t>> EncodeByCrate(std::string_view text,
                                                     bool add_special_tokens) const;

  // Returns the spelling of each special token, as a JSON array, for ChatTemplate. Internal: a bug.
  absl::StatusOr<std::string> SpecialTokens() const;

  // Returns the whole text of `ids`, as the library decodes it. Ids without a token have no text.
  // Streams use Detokenizer: byte-fallback decoders here turn each byte of an invalid run into
  // U+FFFD.
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // One more than the max id that has a token. A model's logits may be wider (padding).
  int32_t vocab_size() const { return static_cast<int32_t>(ends_.size()); }
  // Returns the bytes of the token, perhaps part of a character; empty for an id without a token.
  std::string_view TokenBytes(int32_t id) const;
  bool IsToken(int32_t id) const {
    return InRange(id) && (flags_[static_cast<size_t>(id)] & kExists) != 0;
  }
  // Special: an added token marked special (begin of text, end of turn); skip_special_tokens hides
  // it.
  bool IsSpecial(int32_t id) const {
    return InRange(id) && (flags_[static_cast<size_t>(id)] & kSpecial) != 0;
  }
  // Returns the id of a token as tokenizer.json spells it ("<|im_end|>"); nullopt: no such token.
  std::optional<int32_t> IdOf(std::string_view token) const;
  // The max bytes of one token: a prompt of more than n * longest_token_bytes() bytes has more than
  // n tokens.
  size_t longest_token_bytes() const { return longest_; }
  LeadingSpace leading_space() const { return leading_space_; }

 private:
  static constexpr uint8_t kExists = 1;
  static constexpr uint8_t kSpecial = 2;

  Tokenizer() = default;
  // `controls`: null in a plain prompt.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const std::vector<PromptText::Place>* controls,
                                              bool add_special_tokens, CachedSegments cached,
                                              absl::Duration limit) const;
  bool InRange(int32_t id) const { return id >= 0 && id < vocab_size(); }

  NativeTokenizer* native_ = nullptr;
  std::string bytes_;           // the bytes of all tokens, in order of id
  std::vector<uint32_t> ends_;  // token id ends at ends_[id] in bytes_ and starts where id - 1 ends
  std::vector<uint8_t> flags_;
  size_t longest_ = 0;
  LeadingSpace leading_space_ = LeadingSpace::kKeep;
};

}  // namespace baton
