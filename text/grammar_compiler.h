// Compiles the grammars of one model and remembers the latest, so that requests with the same
// schema share one grammar. Any thread with 4 MiB of stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/token_grammar.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace baton {

class GrammarCompiler {
 public:
  // The tokenizer outlives it. end_tokens: as in GrammarVocabulary.
  GrammarCompiler(const Tokenizer* tokenizer, std::vector<int32_t> end_tokens);

  // The grammar if it is remembered, else null. Takes no time.
  SharedGrammar Find(const GrammarSpec& spec);
  // Compiles, unless the grammar is remembered. The first call makes the vocabulary (up to a second
  // for 128,000 tokens), and calls beside it wait for that. Errors: as Grammar::Compile.
  absl::StatusOr<SharedGrammar> Compile(const GrammarSpec& spec);

 private:
  using Key = std::pair<GrammarKind, std::string>;
  struct Kept {
    SharedGrammar grammar;
    std::list<Key>::iterator use;
  };

  absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> Vocabulary();
  void Keep(const GrammarSpec& spec, const SharedGrammar& grammar);

  const Tokenizer* const tokenizer_;
  const std::vector<int32_t> end_tokens_;
  std::mutex vocabulary_mutex_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::mutex mutex_;  // of what follows
  absl::flat_hash_map<Key, Kept> kept_;
  std::list<Key> uses_;  // the latest first
};

}  // namespace baton
