#include "text/grammar.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "text/native.h"

namespace baton {

struct NativeGrammarVocabulary {
  baton_grammar_vocabulary* handle = nullptr;
  ~NativeGrammarVocabulary() { baton_grammar_vocabulary_free(handle); }
};

struct NativeGrammar {
  baton_grammar* handle = nullptr;
  ~NativeGrammar() { baton_grammar_free(handle); }
};

struct NativeMatcher {
  baton_matcher* handle = nullptr;
  ~NativeMatcher() { baton_matcher_free(handle); }
};

absl::StatusOr<std::unique_ptr<GrammarVocabulary>> GrammarVocabulary::Create(
    const Tokenizer& tokenizer, std::span<const int32_t> end_tokens) {
  std::string bytes;
  std::vector<uint32_t> ends;
  std::vector<uint8_t> flags;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    bytes += tokenizer.TokenBytes(id);
    ends.push_back(static_cast<uint32_t>(bytes.size()));
    flags.push_back(static_cast<uint8_t>((tokenizer.IsToken(id) ? BATON_TOKEN_EXISTS : 0) |
                                         (tokenizer.IsSpecial(id) ? BATON_TOKEN_SPECIAL : 0)));
  }
  const baton_token_table table = {native::View(bytes), ends.data(), flags.data(), ends.size()};
  std::unique_ptr<GrammarVocabulary> vocabulary(new GrammarVocabulary);
  vocabulary->native_ = std::make_unique<NativeGrammarVocabulary>();
  vocabulary->size_ = tokenizer.vocab_size();
  native::Bytes error;
  RETURN_IF_ERROR(
      native::ToStatus(baton_grammar_vocabulary_new(&table, end_tokens.data(), end_tokens.size(),
                                                    &vocabulary->native_->handle, error.out()),
                       error));
  return vocabulary;
}

GrammarVocabulary::~GrammarVocabulary() = default;

absl::StatusOr<std::unique_ptr<Grammar>> Grammar::Compile(const GrammarSpec& spec,
                                                          const GrammarVocabulary& vocabulary) {
  std::unique_ptr<Grammar> grammar(new Grammar);
  grammar->native_ = std::make_unique<NativeGrammar>();
  native::Bytes error;
  RETURN_IF_ERROR(native::ToStatus(
      baton_grammar_new(vocabulary.native_->handle, static_cast<int32_t>(spec.kind),
                        native::View(spec.text), &grammar->native_->handle, error.out()),
      error));
  return grammar;
}

Grammar::~Grammar() = default;

absl::StatusOr<GrammarMatcher> Grammar::NewMatcher() const {
  auto matcher = std::make_unique<NativeMatcher>();
  native::Bytes error;
  RETURN_IF_ERROR(
      native::ToStatus(baton_matcher_new(native_->handle, &matcher->handle, error.out()), error));
  return GrammarMatcher(std::move(matcher));
}

GrammarMatcher::GrammarMatcher(std::unique_ptr<NativeMatcher> native)
    : native_(std::move(native)) {}
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;
GrammarMatcher::~GrammarMatcher() = default;

absl::Status GrammarMatcher::FillMask(std::span<uint32_t> bits) {
  native::Bytes error;
  const baton_status status =
      baton_matcher_mask(native_->handle, bits.data(), bits.size(), error.out());
  return native::ToStatus(status, error);
}

absl::Status GrammarMatcher::Push(int32_t token) {
  native::Bytes error;
  const baton_status status = baton_matcher_push(native_->handle, token, error.out());
  return native::ToStatus(status, error);
}

bool GrammarMatcher::accepting() const {
  return (baton_matcher_state(native_->handle) & BATON_MATCHER_ACCEPTING) != 0;
}

bool GrammarMatcher::done() const {
  return (baton_matcher_state(native_->handle) & BATON_MATCHER_DONE) != 0;
}

bool GrammarMatcher::failed() const {
  return (baton_matcher_state(native_->handle) & BATON_MATCHER_FAILED) != 0;
}

absl::StatusOr<GrammarMatcher> GrammarMatcher::Clone() const {
  auto matcher = std::make_unique<NativeMatcher>();
  native::Bytes error;
  RETURN_IF_ERROR(
      native::ToStatus(baton_matcher_copy(native_->handle, &matcher->handle, error.out()), error));
  return GrammarMatcher(std::move(matcher));
}

}  // namespace baton
