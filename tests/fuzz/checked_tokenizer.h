// Uses a tokenizer that a damaged file gave: whatever its tokens are, its parts fit each other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace baton {

inline void CheckTokens(const Tokenizer& tokenizer) {
  size_t longest = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const size_t size = tokenizer.TokenBytes(id).size();
    longest = std::max(longest, size);
    BATON_CHECK(size == 0 || tokenizer.IsToken(id));
    BATON_CHECK(!tokenizer.IsSpecial(id) || tokenizer.IsToken(id));
  }
  BATON_CHECK(tokenizer.longest_token_bytes() == longest);
  BATON_CHECK(tokenizer.vocab_size() == 0 || tokenizer.IsToken(tokenizer.vocab_size() - 1));
  BATON_CHECK(!tokenizer.IsToken(tokenizer.vocab_size()) && !tokenizer.IsToken(-1));
  BATON_CHECK(tokenizer.SpecialTokens().ok());
}

// A tokenizer may refuse a text; what it gives are ids of its own, the same ones each time.
inline void CheckUse(const Tokenizer& tokenizer, const std::string& text) {
  for (const bool adds : {false, true}) {
    const auto ids = tokenizer.Encode(text, adds);
    const auto again = tokenizer.Encode(PromptText{.text = text}, adds);
    BATON_CHECK(ids.ok() == again.ok());
    if (!ids.ok()) continue;
    BATON_CHECK(*again == *ids);
    std::string streamed, bytes;
    Detokenizer detokenizer(&tokenizer, {.skip_special_tokens = false});
    for (const int32_t id : *ids) {
      BATON_CHECK(tokenizer.IsToken(id));
      streamed += detokenizer.Push(id);
      bytes += tokenizer.TokenBytes(id);
    }
    BATON_CHECK(streamed + detokenizer.Finish() == ValidUtf8(bytes));
    static_cast<void>(tokenizer.Decode(*ids, adds));  // a text or a refusal
  }
}

}  // namespace baton
