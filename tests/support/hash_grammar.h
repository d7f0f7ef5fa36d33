// A grammar without texts, for tests of what carries grammars: which tokens may come next is a hash
// of (grammar's text, tokens so far). A text "... ends N" allows nothing after N tokens but
// kEndToken; a text "... breaks N" fails with ResourceExhausted there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/token_grammar.h"

namespace baton {

class HashMatcher : public TokenMatcher {
 public:
  static constexpr int32_t kEndToken = 7;

  HashMatcher(const std::string& text, int vocab) : vocab_(vocab) {
    const std::vector<std::string> words = absl::StrSplit(text, ' ');
    for (const char c : text) Mix(static_cast<uint64_t>(c));
    if (words.size() < 2) return;
    int n = 0;
    if (!absl::SimpleAtoi(words.back(), &n)) return;
    if (words[words.size() - 2] == "ends") ends_at_ = n;
    if (words[words.size() - 2] == "breaks") breaks_at_ = n;
  }

  size_t mask_words() const override { return (static_cast<size_t>(vocab_) + 31) / 32; }
  absl::Status FillMask(std::span<uint32_t> bits) override {
    if (n_ == breaks_at_) return absl::ResourceExhaustedError("the grammar broke");
    std::fill(bits.begin(), bits.end(), 0);
    for (int32_t token = 0; token < vocab_; ++token)
      if (Allows(token)) bits[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    return absl::OkStatus();
  }
  absl::Status Push(int32_t token) override {
    if (n_ == breaks_at_) return absl::ResourceExhaustedError("the grammar broke");
    if (!Allows(token)) return absl::InvalidArgumentError("the grammar does not allow this token");
    Mix(static_cast<uint64_t>(token));
    ++n_;
    return absl::OkStatus();
  }
  bool is_done() const override { return n_ >= ends_at_; }

 private:
  // Half of all tokens, and always the end token.
  bool Allows(int32_t token) const {
    if (token == kEndToken || is_done()) return token == kEndToken;
    uint64_t x = (state_ ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    return (x * 0xBF58476D1CE4E5B9u) >> 63 != 0;
  }
  void Mix(uint64_t value) { state_ = (state_ ^ value) * 0x100000001B3u + 1; }

  const int vocab_;
  uint64_t state_ = 0xCBF29CE484222325u;
  int n_ = 0, ends_at_ = INT32_MAX, breaks_at_ = -1;
};

class HashGrammar : public TokenGrammar {
 public:
  HashGrammar(std::string text, int vocab) : text_(std::move(text)), vocab_(vocab) {}
  absl::StatusOr<std::unique_ptr<TokenMatcher>> NewMatcher() const override {
    return std::make_unique<HashMatcher>(text_, vocab_);
  }

 private:
  const std::string text_;
  const int vocab_;
};

// Null if there is no grammar.
inline SharedGrammar HashGrammarOf(const GrammarSpec& spec, int vocab) {
  if (spec.kind == GrammarKind::kNone) return nullptr;
  return std::make_shared<HashGrammar>(spec.text, vocab);
}

}  // namespace baton
