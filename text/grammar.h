// Structured output: which tokens may come next so that the text stays one of a grammar's (JSON by
// a schema, a regex, a choice, Lark), by the llguidance library behind text/ffi. Everything is a
// function of (grammar, tokens): whoever compiles the same GrammarSpec with the same tokenizer and
// pushes the same tokens gets the same masks.
//
// The vocabulary and a grammar are immutable: any thread. A matcher belongs to one sequence and one
// thread at a time. Docs: docs/GRAMMAR.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/grammar_spec.h"
#include "text/tokenizer.h"

namespace baton {

// The Rust objects behind the classes.
struct NativeGrammarVocabulary;
struct NativeGrammar;
struct NativeMatcher;

// A tokenizer's tokens in the form that masks are made with. Built once per model; takes about a
// second and 50 MB for 128,000 tokens.
class GrammarVocabulary {
 public:
  // end_tokens: ids that end a sequence of this model. They are allowed where a text of the grammar
  // may end, and are never part of a text. InvalidArgument: an id without a token.
  static absl::StatusOr<std::unique_ptr<GrammarVocabulary>> Create(
      const Tokenizer& tokenizer, std::span<const int32_t> end_tokens);
  ~GrammarVocabulary();
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

  int32_t size() const { return size_; }
  // Words of a mask that has a bit for each token.
  size_t mask_words() const { return (static_cast<size_t>(size_) + 31) / 32; }

 private:
  friend class Grammar;
  GrammarVocabulary() = default;
  std::unique_ptr<NativeGrammarVocabulary> native_;
  int32_t size_ = 0;
};

class GrammarMatcher;

class Grammar {
 public:
  // Compiles. InvalidArgument says what is wrong with the text, with the path of the keyword in a
  // schema or the line in Lark, or which bound it is beyond: its size, its depth, or the work of
  // compiling, which is counted, not timed, so that every process decides alike. A grammar that
  // passes takes at most about 200 ms; most take 1 ms. Needs a thread with 4 MiB of stack.
  static absl::StatusOr<std::unique_ptr<Grammar>> Compile(const GrammarSpec& spec,
                                                          const GrammarVocabulary& vocabulary);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // A matcher at the start of a text. It outlives the grammar and the vocabulary.
  absl::StatusOr<GrammarMatcher> NewMatcher() const;

 private:
  Grammar() = default;
  std::unique_ptr<NativeGrammar> native_;
};

// The place of one sequence in its grammar.
class GrammarMatcher {
 public:
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;
  ~GrammarMatcher();

  // Sets bit i % 32 of bits[i / 32] for each token i that may come next, and clears all others.
  // bits: at least mask_words(), more if the model's logits are wider than the vocabulary.
  // ResourceExhausted: the grammar hit a limit; this matcher has failed, no other is affected.
  absl::Status FillMask(std::span<uint32_t> bits);

  // Goes on by one token. InvalidArgument: the token is not allowed, and nothing has changed.
  // ResourceExhausted: as FillMask.
  absl::Status Push(int32_t token);

  // The tokens so far are a whole text of the grammar: an end token is allowed.
  bool accepting() const;
  // Nothing but an end token may follow, or one was pushed.
  bool done() const;
  bool failed() const;

  // An independent matcher at the same place.
  absl::StatusOr<GrammarMatcher> Clone() const;

 private:
  friend class Grammar;
  explicit GrammarMatcher(std::unique_ptr<NativeMatcher> native);
  std::unique_ptr<NativeMatcher> native_;
};

}  // namespace baton
