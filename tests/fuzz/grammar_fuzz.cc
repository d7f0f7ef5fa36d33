// Grammars of clients: compiled or refused within the bounds, with masks that say what may be
// pushed, and texts that are what the grammar is for.
#include <boost/json.hpp>
#include <memory>

#include "common/check.h"
#include "tests/fuzz/file_text.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/thread_time.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace baton {
namespace {

namespace json = boost::json;

// Time bounds what is counted, too, with room for instrumented code.
constexpr absl::Duration kMaxCompile = absl::Seconds(2), kMaxMask = absl::Seconds(1);
constexpr int kMaxTokens = 12;

struct Model {
  std::unique_ptr<Tokenizer> tokenizer = Tokenizer::FromFolder(SourcePath("models/demo")).value();
  int32_t end = tokenizer->IdOf("<|im_end|>").value();
  std::unique_ptr<GrammarVocabulary> vocabulary =
      GrammarVocabulary::Create(*tokenizer, std::span(&end, 1)).value();
};

const Model& Demo() {
  static const Model model;
  return model;
}

using Mask = std::vector<uint32_t>;

bool Has(const Mask& mask, int32_t id) {
  return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

// False: the matcher hit a limit, and no other is affected.
bool Fill(GrammarMatcher& matcher, Mask* mask) {
  const absl::Duration begin = ThreadTime();
  const absl::Status status = matcher.FillMask(*mask);
  BATON_CHECK(ThreadTime() - begin < kMaxMask);
  if (status.ok()) return true;
  BATON_CHECK(absl::IsResourceExhausted(status));
  BATON_CHECK(matcher.failed());
  return false;
}

// Checks a text that may end.
void CheckText(const GrammarSpec& spec, const std::string& text) {
  boost::system::error_code error;
  if (spec.kind == GrammarKind::kJsonObject || spec.kind == GrammarKind::kJsonSchema) {
    json::parse_options options;
    options.max_depth = 1000;
    const json::value value = json::parse({text.data(), text.size()}, error, {}, options);
    BATON_CHECK(!error);
    if (spec.kind == GrammarKind::kJsonObject) BATON_CHECK(value.is_object());
  } else if (spec.kind == GrammarKind::kChoice) {
    bool is_choice = false;
    const json::value choices = json::parse(spec.text);
    for (const json::value& choice : choices.as_array())
      is_choice |= std::string_view(choice.as_string()) == text;
    BATON_CHECK(is_choice);
  }
}

// Pushes a token that the mask has, after one that it has not.
bool Step(const Model& model, GrammarMatcher& matcher, const Mask& mask, std::mt19937_64& random,
          std::string* text) {
  std::vector<int32_t> allowed, others;
  for (int32_t id = 0; id < model.vocabulary->size(); ++id)
    (Has(mask, id) ? allowed : others).push_back(id);
  BATON_CHECK(!allowed.empty());
  if (!others.empty()) {
    const absl::Status refused = matcher.Push(others[random() % others.size()]);
    if (absl::IsResourceExhausted(refused)) return false;
    BATON_CHECK(absl::IsInvalidArgument(refused));
    BATON_CHECK(!matcher.failed());
  }
  const int32_t id = allowed[random() % allowed.size()];
  const absl::Status pushed = matcher.Push(id);
  if (absl::IsResourceExhausted(pushed)) return false;
  BATON_CHECK(pushed.ok());
  if (id == model.end) {
    BATON_CHECK(matcher.done());
    return false;
  }
  *text += model.tokenizer->TokenBytes(id);
  return true;
}

void Walk(const Model& model, const GrammarSpec& spec, const Grammar& grammar,
          std::mt19937_64& random) {
  GrammarMatcher matcher = grammar.NewMatcher().value();
  std::string text;
  for (int n = 0; n < kMaxTokens && !matcher.done(); ++n) {
    Mask mask(model.vocabulary->mask_words()), other(mask.size(), ~0u);
    if (!Fill(matcher, &mask)) return;
    BATON_CHECK(Has(mask, model.end) == matcher.accepting());
    if (matcher.accepting()) CheckText(spec, text);
    GrammarMatcher copy = matcher.Clone().value();
    if (Fill(copy, &other)) BATON_CHECK(other == mask);
    if (!Step(model, matcher, mask, random, &text)) return;
  }
  if (matcher.done() && matcher.accepting()) CheckText(spec, text);
}

}  // namespace

void TryInput(std::string_view bytes) {
  const Model& model = Demo();
  FuzzInput input(bytes);
  const auto kind =
      static_cast<GrammarKind>(1 + input.Below(static_cast<size_t>(kLastGrammarKind)));
  const GrammarSpec spec{kind, std::string(input.Rest())};
  const absl::Duration begin = ThreadTime();
  const auto grammar = Grammar::Compile(spec, *model.vocabulary);
  BATON_CHECK(ThreadTime() - begin < kMaxCompile);
  if (grammar.ok()) return Walk(model, spec, **grammar, input.random());
  BATON_CHECK(absl::IsInvalidArgument(grammar.status()));
  BATON_CHECK(!grammar.status().message().empty());
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  const auto add = [&](GrammarKind kind, const std::string& text) {
    seeds.inputs.push_back(static_cast<char>(static_cast<int>(kind) - 1) + text);
  };
  add(GrammarKind::kJsonObject, "");
  for (const char* schema :
       {R"({"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]{2,5}$"},)"
        R"("b":{"type":"array","items":{"$ref":"#/$defs/c"},"minItems":1,"maxItems":3}},)"
        R"("required":["a"],"additionalProperties":{"type":"number","minimum":-3.5,)"
        R"("multipleOf":0.5},"$defs":{"c":{"oneOf":[{"const":"x"},{"type":"integer",)"
        R"("exclusiveMaximum":7},{"format":"date-time"}]}}})",
        R"({"anyOf":[{"enum":[1,"a",null,{"k":[]}]},{"type":["boolean","null"]}]})",
        R"({"type":"array","prefixItems":[{"type":"integer"}],"items":false})",
        R"({"allOf":[{"required":["x"]},{"patternProperties":{"^y":{"minLength":2}}}]})",
        R"({"type":"number","exclusiveMinimum":0.1,"maximum":1e9,"multipleOf":7})",
        R"({"maxProperties":2,"minProperties":1,"additionalProperties":{"maxLength":3}})",
        R"({"x-guidance":{"whitespace_flexible":false},"items":{"$ref":"#"}})"})
    add(GrammarKind::kJsonSchema, schema);
  for (const char* regex :
       {R"((?i)[a-z_]{1,8}(\.\d{2,3}|\/\w*|[^"\\])+?(x|y{0,4})$)", "(a|b)*a(a|b){9}",
        "\\p{L}+\\s?[^\\x00-\\x1f]", "^(?:[+-]?\\d+(?:\\.\\d*)?)$", "(?s).*?", "a{3,}b?"})
    add(GrammarKind::kRegex, regex);
  add(GrammarKind::kChoice, R"(["red","green \"\u00e9\"","\u0041\n","re"])");
  for (const char* lark :
       {"start: expr\nexpr: term ((\"+\" | \"-\") term)* // sum\nterm: NUMBER | \"(\" expr "
        "\")\" | <|im_start|>\nNUMBER: /[0-9]{1,3}/\n%ignore /[ ]{1,3}/\n",
        "%import common.INT\nstart: a{2,3} [b]\na: \"x\"i | INT\n?b: \"y\"~2\n",
        "start: \"a\" start \"b\" | \"\"\n"})
    add(GrammarKind::kLark, lark);
  add(GrammarKind::kParts,
      R"J([{"text":"<call>"},{"any":[[{"text":"a("},{"schema":{"type":"integer"}}],)J"
      R"J([{"regex":"[a-z]+"},{"choice":["x","y"]}]]},{"token":5},)J"
      R"J({"repeat":[{"text":";"}],"min":1,"max":3,"between":[{"text":","}]}])J");
  for (const char* word : {"\"type\":",
                           "\"object\"",
                           "\"array\"",
                           "\"string\"",
                           "\"integer\"",
                           "\"number\"",
                           "\"properties\":{",
                           "\"required\":[",
                           "\"additionalProperties\":",
                           "\"items\":",
                           "\"enum\":[",
                           "\"const\":",
                           "\"anyOf\":[",
                           "\"allOf\":[",
                           "\"oneOf\":[",
                           "\"$ref\":\"#/",
                           "\"$defs\":{",
                           "\"pattern\":\"",
                           "\"format\":\"",
                           "\"date\"",
                           "\"uuid\"",
                           "\"email\"",
                           "\"minLength\":",
                           "\"maxItems\":",
                           "\"minItems\":",
                           "\"multipleOf\":",
                           "\"exclusiveMinimum\":",
                           "\"not\":",
                           "\"patternProperties\":{",
                           "\"prefixItems\":[",
                           "\"minProperties\":",
                           "10000",
                           "{1,1000}",
                           "(?i)",
                           "\\p{L}",
                           "[^",
                           "(?:",
                           "start:",
                           "%ignore ",
                           "%import common.",
                           "<|im_end|>",
                           "<[",
                           "\"text\":",
                           "\"any\":[[",
                           "\"repeat\":[",
                           "\"token\":",
                           "\"schema\":",
                           "\"regex\":"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
