// A compiled grammar as the workers see it: which tokens may come next in a sequence, as a function
// of the tokens so far. The engine masks logits by it and knows nothing of texts; text/ implements
// it (text/grammar_compiler.h), the simulation has one of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/grammar_spec.h"

namespace baton {

// The place of one sequence in its grammar. One thread at a time.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;

  // Words of a mask with a bit for each token of the vocabulary.
  virtual size_t mask_words() const = 0;
  // Sets bit i % 32 of bits[i / 32] for each token i that may come next, and clears all others.
  // bits: mask_words(). ResourceExhausted: the grammar needs too much work here; it has failed for
  // good.
  virtual absl::Status FillMask(std::span<uint32_t> bits) = 0;
  // Goes on by one token. InvalidArgument: the token is not allowed. ResourceExhausted: as
  // FillMask.
  virtual absl::Status Push(int32_t token) = 0;
  // Nothing but a token that ends the sequence may follow.
  virtual bool is_done() const = 0;
};

// Immutable: any thread.
class TokenGrammar {
 public:
  virtual ~TokenGrammar() = default;
  // A matcher at the start of a text; it may outlive the grammar.
  virtual absl::StatusOr<std::unique_ptr<TokenMatcher>> NewMatcher() const = 0;
};

using SharedGrammar = std::shared_ptr<const TokenGrammar>;
// Compiles for the model that is served. InvalidArgument: what is wrong with the grammar, and
// where. Takes up to 200 ms (the first call up to a second more), on any thread with 4 MiB of
// stack.
using GrammarCompilerFn = std::function<absl::StatusOr<SharedGrammar>(const GrammarSpec&)>;

}  // namespace baton
