#include "text/grammar_compiler.h"

#include <optional>
#include <span>

#include "common/status.h"

namespace baton {
namespace {

constexpr size_t kMaxKept = 128;

class Matcher : public TokenMatcher {
 public:
  Matcher(GrammarMatcher matcher, size_t mask_words)
      : matcher_(std::move(matcher)), mask_words_(mask_words) {}

  size_t mask_words() const override { return mask_words_; }
  absl::Status FillMask(std::span<uint32_t> bits) override { return matcher_.FillMask(bits); }
  absl::Status Push(int32_t token) override { return matcher_.Push(token); }
  bool is_done() const override { return matcher_.done(); }

 private:
  GrammarMatcher matcher_;
  const size_t mask_words_;
};

class CompiledGrammar : public TokenGrammar {
 public:
  CompiledGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary,
                  std::unique_ptr<Grammar> grammar)
      : vocabulary_(std::move(vocabulary)), grammar_(std::move(grammar)) {}

  absl::StatusOr<std::unique_ptr<TokenMatcher>> NewMatcher() const override {
    ASSIGN_OR_RETURN(GrammarMatcher matcher, grammar_->NewMatcher());
    return std::make_unique<Matcher>(std::move(matcher), vocabulary_->mask_words());
  }

 private:
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const std::unique_ptr<Grammar> grammar_;
};

}  // namespace

GrammarCompiler::GrammarCompiler(const Tokenizer* tokenizer, std::vector<int32_t> end_tokens)
    : tokenizer_(tokenizer), end_tokens_(std::move(end_tokens)) {}

SharedGrammar GrammarCompiler::Find(const GrammarSpec& spec) {
  std::lock_guard lock(mutex_);
  const auto found = kept_.find(Key(spec.kind, spec.text));
  if (found == kept_.end()) return nullptr;
  uses_.splice(uses_.begin(), uses_, found->second.use);
  return found->second.grammar;
}

absl::StatusOr<SharedGrammar> GrammarCompiler::Compile(const GrammarSpec& spec) {
  if (SharedGrammar kept = Find(spec)) return kept;
  ASSIGN_OR_RETURN(std::shared_ptr<const GrammarVocabulary> vocabulary, Vocabulary());
  ASSIGN_OR_RETURN(std::unique_ptr<Grammar> grammar, Grammar::Compile(spec, *vocabulary));
  const auto compiled =
      std::make_shared<CompiledGrammar>(std::move(vocabulary), std::move(grammar));
  Keep(spec, compiled);
  return compiled;
}

absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> GrammarCompiler::Vocabulary() {
  std::lock_guard lock(vocabulary_mutex_);
  if (vocabulary_ == nullptr) {
    ASSIGN_OR_RETURN(vocabulary_, GrammarVocabulary::Create(*tokenizer_, end_tokens_));
  }
  return vocabulary_;
}

void GrammarCompiler::Keep(const GrammarSpec& spec, const SharedGrammar& grammar) {
  std::lock_guard lock(mutex_);
  const auto [kept, is_new] = kept_.try_emplace(Key(spec.kind, spec.text));
  if (!is_new) return;  // compiled by two threads at once
  uses_.push_front(kept->first);
  kept->second = {grammar, uses_.begin()};
  if (kept_.size() <= kMaxKept) return;
  kept_.erase(uses_.back());
  uses_.pop_back();
}

}  // namespace baton
