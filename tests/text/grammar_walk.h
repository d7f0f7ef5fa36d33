// Tools of the tests of grammars: a model's vocabulary, masks as lists of tokens, and texts that
// random choices of allowed tokens make.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/text/oracle.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace baton::grammar_walk {

struct Model {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<GrammarVocabulary> vocabulary;
  int32_t end = 0;  // the end token
};

inline Model LoadModel(const std::string& folder, std::string_view end) {
  Model model;
  model.tokenizer = Tokenizer::FromFolder(folder).value();
  model.end = model.tokenizer->IdOf(end).value();
  model.vocabulary = GrammarVocabulary::Create(*model.tokenizer, std::span(&model.end, 1)).value();
  return model;
}

inline Model DemoModel() {
  return LoadModel(std::string(BATON_SOURCE_DIR) + "/models/demo", "<|im_end|>");
}

inline std::vector<uint32_t> Mask(const Model& model, GrammarMatcher& matcher) {
  std::vector<uint32_t> bits(model.vocabulary->mask_words());
  const absl::Status filled = matcher.FillMask(bits);
  INFO(filled);
  REQUIRE(filled.ok());
  return bits;
}

inline std::vector<int32_t> Allowed(const Model& model, GrammarMatcher& matcher) {
  const std::vector<uint32_t> bits = Mask(model, matcher);
  std::vector<int32_t> tokens;
  for (int32_t id = 0; id < model.vocabulary->size(); ++id)
    if (bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) tokens.push_back(id);
  return tokens;
}

inline absl::StatusOr<std::unique_ptr<Grammar>> Compile(const Model& model, GrammarKind kind,
                                                        std::string text) {
  return Grammar::Compile({kind, std::move(text)}, *model.vocabulary);
}

inline GrammarMatcher MatcherOf(const Model& model, GrammarKind kind, std::string text) {
  INFO(text);
  const auto grammar = Compile(model, kind, text);
  INFO(grammar.status());
  REQUIRE(grammar.ok());
  return (*grammar)->NewMatcher().value();
}

// The tokens of a walk by uniform choices, the end token left out.
struct Walk {
  std::vector<int32_t> tokens;
  std::string text;
  bool ended = false;  // by the end token, or because nothing else could follow
};

inline Walk RandomWalk(const Model& model, GrammarMatcher& matcher, std::mt19937_64& random,
                       int max_tokens) {
  Walk walk;
  for (int i = 0; i < max_tokens; ++i) {
    const std::vector<int32_t> allowed = Allowed(model, matcher);
    REQUIRE(!allowed.empty());
    const int32_t token = allowed[random() % allowed.size()];
    const absl::Status pushed = matcher.Push(token);
    INFO(pushed);
    REQUIRE(pushed.ok());
    if (token == model.end) {
      CHECK(matcher.done());
      walk.ended = true;
      break;
    }
    walk.tokens.push_back(token);
    walk.text += model.tokenizer->TokenBytes(token);
  }
  return walk;
}

// Whether the grammar takes the text, byte by byte, as a whole. The tokenizer has a token for each
// byte.
inline bool Takes(const Model& model, GrammarMatcher matcher, std::string_view text) {
  for (const char byte : text) {
    std::optional<int32_t> token;
    for (int32_t id = 0; id < model.vocabulary->size() && !token; ++id)
      if (model.tokenizer->TokenBytes(id) == std::string_view(&byte, 1) &&
          !model.tokenizer->IsSpecial(id))
        token = id;
    REQUIRE(token.has_value());
    if (!matcher.Push(*token).ok()) return false;
  }
  return matcher.accepting();
}

}  // namespace baton::grammar_walk
