// Masks of grammars: against the matcher's own word token by token, equal when replayed or copied,
// and the errors of what is no grammar.
#include "text/grammar.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "tests/text/grammar_walk.h"

namespace baton {

using absl::StatusCode;
using grammar_walk::Allowed;
using grammar_walk::Compile;
using grammar_walk::DemoModel;
using grammar_walk::Mask;
using grammar_walk::MatcherOf;
using grammar_walk::Model;
using grammar_walk::RandomWalk;
using grammar_walk::Takes;
using grammar_walk::Walk;

namespace {

std::string Joined(int count, std::string_view item) {
  std::string list;
  for (int i = 0; i < count; ++i) list.append(i == 0 ? "" : ",").append(item);
  return list;
}

const std::vector<GrammarSpec>& Specs() {
  static const std::vector<GrammarSpec> specs = {
      {GrammarKind::kJsonObject, ""},
      {GrammarKind::kJsonSchema,
       R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},
           "age":{"type":"integer","minimum":0,"maximum":120},
           "tags":{"type":"array","items":{"enum":["a","bc","def"]},"maxItems":4}},
           "required":["name","age"],"additionalProperties":false})"},
      {GrammarKind::kJsonSchema, R"({"anyOf":[{"type":"boolean"},{"type":"null"},
           {"type":"string","format":"date"},{"$ref":"#/$defs/n"}],
           "$defs":{"n":{"type":"number","minimum":-1,"exclusiveMaximum":2.5}}})"},
      {GrammarKind::kRegex, R"([A-Z][a-z]{1,9}(, [a-z]+)*\.)"},
      {GrammarKind::kRegex, "(?:é|ü|\\p{Greek}){2,4}"},
      {GrammarKind::kChoice, R"(["yes","no","not sure","né \"quoted\" / \\x"])"},
      {GrammarKind::kLark,
       "start: expr\nexpr: term ((\"+\" | \"-\") term)*\nterm: NUMBER | \"(\" expr \")\"\n"
       "NUMBER: /[0-9]{1,3}/\n"},
      {GrammarKind::kParts,
       R"J([{"text":"<call>"},{"any":[[{"text":"a("},{"schema":{"type":"integer"}}],
           [{"text":"b("},{"choice":["x","y"]}]]},{"text":")"},
           {"repeat":[{"text":";"},{"regex":"[0-9]"}],"min":0,"max":3}])J"},
      {GrammarKind::kParts, R"J([{"repeat":[{"schema":{"enum":["a","bc",5]}}],
                                  "between":[{"text":", "}],"min":1,"max":4}])J"},
  };
  return specs;
}

TEST_CASE("a token is in the mask if and only if the matcher takes it") {
  const std::vector<Model> models = [] {
    std::vector<Model> list;
    list.push_back(DemoModel());
    list.push_back(grammar_walk::LoadModel(oracle::Data("tokenizers/llama2"), "</s>"));
    return list;
  }();
  std::mt19937_64 random(1);
  for (const Model& model : models) {
    for (const GrammarSpec& spec : Specs()) {
      INFO(spec.text);
      const auto grammar = Grammar::Compile(spec, *model.vocabulary);
      INFO(grammar.status());
      REQUIRE(grammar.ok());
      for (int walk = 0; walk < 3; ++walk) {
        GrammarMatcher matcher = (*grammar)->NewMatcher().value();
        for (int step = 0; step < 12 && !matcher.done(); ++step) {
          const std::vector<int32_t> allowed = Allowed(model, matcher);
          const std::set<int32_t> in_mask(allowed.begin(), allowed.end());
          int wrong = 0;
          for (int32_t id = 0; id < model.vocabulary->size(); id += step == 0 ? 1 : 7) {
            GrammarMatcher next = matcher.Clone().value();
            wrong += next.Push(id).ok() != in_mask.contains(id);
          }
          CHECK(wrong == 0);
          CHECK(in_mask.contains(model.end) == matcher.accepting());
          REQUIRE(matcher.Push(allowed[random() % allowed.size()]).ok());
        }
      }
    }
  }
}

TEST_CASE("the same tokens give the same masks, by another compile and by a copy") {
  const Model model = DemoModel();
  std::mt19937_64 random(2);
  for (const GrammarSpec& spec : Specs()) {
    INFO(spec.text);
    const auto first = Grammar::Compile(spec, *model.vocabulary).value();
    const auto other_vocabulary =
        GrammarVocabulary::Create(*model.tokenizer, std::span(&model.end, 1)).value();
    const auto second = Grammar::Compile(spec, *other_vocabulary).value();
    GrammarMatcher matcher = first->NewMatcher().value();
    std::vector<std::vector<uint32_t>> masks;
    std::vector<int32_t> tokens;
    std::optional<GrammarMatcher> copy;
    for (int step = 0; step < 60 && !matcher.done(); ++step) {
      if (step == 5) copy = matcher.Clone().value();
      masks.push_back(Mask(model, matcher));
      const std::vector<int32_t> allowed = Allowed(model, matcher);
      tokens.push_back(allowed[random() % allowed.size()]);
      REQUIRE(matcher.Push(tokens.back()).ok());
    }
    GrammarMatcher with_masks = second->NewMatcher().value();
    for (size_t i = 0; i < tokens.size(); ++i) {
      CHECK(Mask(model, with_masks) == masks[i]);
      // A matcher that makes its first mask here, after it was told the tokens alone.
      GrammarMatcher late = second->NewMatcher().value();
      for (size_t j = 0; j < i; ++j) REQUIRE(late.Push(tokens[j]).ok());
      CHECK(Mask(model, late) == masks[i]);
      if (copy && i >= 5) {
        CHECK(Mask(model, *copy) == masks[i]);
        REQUIRE(copy->Push(tokens[i]).ok());
      }
      REQUIRE(with_masks.Push(tokens[i]).ok());
    }
    CHECK(with_masks.done() == matcher.done());
    CHECK(with_masks.accepting() == matcher.accepting());
  }
}

TEST_CASE("regexes, choices and Lark take what they describe and nothing else") {
  const Model model = DemoModel();
  struct Case {
    GrammarKind kind;
    std::string text;
    std::vector<std::string> good, bad;
  };
  const std::string constants = absl::StrCat(
      R"({"anyOf":[)", Joined(900, R"({"const":5},{"type":["string"],"enum":["a"]})"), "]}");
  const std::vector<Case> cases = {
      {GrammarKind::kJsonSchema, constants, {"5", "\"a\""}, {"6"}},
      {GrammarKind::kRegex, "a|b+", {"a", "b", "bbb"}, {"", "ab", "aa", "c"}},
      {GrammarKind::kRegex, "^x/y$", {"x/y"}, {"x", "x/yz"}},
      {GrammarKind::kRegex, "[0-9]*", {"", "12"}, {"a"}},
      {GrammarKind::kRegex, "(?i)yes", {"YES", "yes", "yEs"}, {"no"}},
      {GrammarKind::kRegex, "\\d{3}-\\d{4}", {"555-1234"}, {"555-123", "5551234"}},
      {GrammarKind::kChoice, R"(["a","ab","abc"])", {"a", "ab", "abc"}, {"", "b", "abcd"}},
      {GrammarKind::kChoice, R"(["a.c","[x]","\n/"])", {"a.c", "[x]", "\n/"}, {"abc", "x"}},
      {GrammarKind::kLark,
       "start: \"a\" start \"b\" | \"ab\"",
       {"ab", "aabb"},
       {"a", "aab", "abb"}},
      {GrammarKind::kJsonObject, "", {"{}", "{\"a\": [1, null]}"}, {"", "[]", " {}", "{} "}},
      {GrammarKind::kJsonSchema, "true", {"1", "null", "[{}]"}, {"", "x"}},
      {GrammarKind::kJsonSchema,
       R"({"x-guidance":{"whitespace_flexible":false},"type":"array","items":{"type":"integer"}})",
       {"[]", "[1,2]"},
       {"[1, 2]", "[1.5]"}},
      {GrammarKind::kJsonSchema,
       R"({"type":"object","properties":{"uniqueItems":false,"propertyNames":{"type":"string"}},
           "propertyNames":{"type":"string"},"additionalProperties":{"type":"array",
           "uniqueItems":false}})",
       {"{}", R"({"propertyNames":"a"})", R"({"z":[]})"},
       {R"({"uniqueItems":1})", R"({"propertyNames":1})"}},
      {GrammarKind::kParts,
       R"J([{"text":"f("},{"schema":{"type":"boolean"}},{"text":")"}])J",
       {"f(true)", "f(false)"},
       {"f(1)", "f()", "f(true"}},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    const auto grammar = Compile(model, c.kind, c.text);
    INFO(grammar.status());
    REQUIRE(grammar.ok());
    for (const std::string& text : c.good) {
      INFO("good " << text);
      CHECK(Takes(model, (*grammar)->NewMatcher().value(), text));
    }
    for (const std::string& text : c.bad) {
      INFO("bad " << text);
      CHECK_FALSE(Takes(model, (*grammar)->NewMatcher().value(), text));
    }
  }
}

TEST_CASE("the end of a text") {
  const Model model = DemoModel();
  GrammarMatcher matcher = MatcherOf(model, GrammarKind::kChoice, R"(["a"])");
  CHECK_FALSE(matcher.accepting());
  CHECK(matcher.Push(model.end).code() == StatusCode::kInvalidArgument);
  CHECK(matcher.Push(-1).code() == StatusCode::kInvalidArgument);
  CHECK(matcher.Push(model.vocabulary->size()).code() == StatusCode::kInvalidArgument);
  CHECK(matcher.Push(1 << 30).code() == StatusCode::kInvalidArgument);
  CHECK_FALSE(matcher.failed());
  const std::vector<int32_t> first = Allowed(model, matcher);
  REQUIRE(first.size() == 1);
  REQUIRE(matcher.Push(first[0]).ok());
  CHECK(matcher.done());
  CHECK(matcher.accepting());
  CHECK(Allowed(model, matcher) == std::vector<int32_t>{model.end});
  CHECK(matcher.Push(first[0]).code() == StatusCode::kInvalidArgument);
  CHECK(matcher.Push(model.end).ok());
  CHECK(matcher.done());
  // Words beyond the vocabulary are cleared, and a mask that is too short is an error.
  std::vector<uint32_t> wide(model.vocabulary->mask_words() + 3, ~0u);
  REQUIRE(matcher.FillMask(wide).ok());
  CHECK(wide.back() == 0);
  GrammarMatcher other = MatcherOf(model, GrammarKind::kChoice, R"(["a"])");
  CHECK(other.FillMask(std::span(wide).first(3)).code() == StatusCode::kInvalidArgument);
}

TEST_CASE("special tokens and ids without a token are never text") {
  const Model model = DemoModel();
  GrammarMatcher matcher = MatcherOf(model, GrammarKind::kRegex, "(?s:.*)");
  for (const int32_t id : Allowed(model, matcher)) {
    CHECK(model.tokenizer->IsToken(id));
    if (id != model.end) CHECK_FALSE(model.tokenizer->IsSpecial(id));
  }
  // A grammar may name one, but not an end token.
  const int32_t start = model.tokenizer->IdOf("<|im_start|>").value();
  GrammarMatcher named = MatcherOf(model, GrammarKind::kParts,
                                   absl::StrCat(R"([{"token":)", start, R"(},{"text":"a"}])"));
  CHECK(Allowed(model, named) == std::vector<int32_t>{start});
  CHECK(named.Push(start).ok());
  CHECK(Compile(model, GrammarKind::kParts, absl::StrCat(R"([{"token":)", model.end, "}]"))
            .status()
            .code() == StatusCode::kInvalidArgument);
  GrammarMatcher lark =
      MatcherOf(model, GrammarKind::kLark, "start: (\"b\" | <|im_start|> | <|im_end|>)+");
  CHECK_FALSE(lark.Push(model.end).ok());
  const std::vector<int32_t> any = Allowed(model, lark);
  CHECK(std::count(any.begin(), any.end(), start) == 1);
  CHECK(std::count(any.begin(), any.end(), model.end) == 0);
  CHECK(Compile(model, GrammarKind::kLark, "start: <|im_end|>").status().code() ==
        StatusCode::kInvalidArgument);
  // An ordinary token that ends sequences is no text either.
  const int32_t letter = model.tokenizer->IdOf("a").value();
  const auto vocabulary =
      GrammarVocabulary::Create(*model.tokenizer, std::span(&letter, 1)).value();
  auto until_a = Grammar::Compile({GrammarKind::kRegex, "[a-c]+"}, *vocabulary).value();
  GrammarMatcher ends_with_a = until_a->NewMatcher().value();
  CHECK(ends_with_a.Push(letter).code() == StatusCode::kInvalidArgument);
  REQUIRE(ends_with_a.Push(model.tokenizer->IdOf("b").value()).ok());
  CHECK(ends_with_a.Push(letter).ok());
  CHECK(ends_with_a.done());
}

TEST_CASE("a vocabulary without end tokens stops where nothing can follow") {
  const Model demo = DemoModel();
  const auto vocabulary = GrammarVocabulary::Create(*demo.tokenizer, {}).value();
  const auto grammar = Grammar::Compile({GrammarKind::kChoice, R"(["b"])"}, *vocabulary).value();
  GrammarMatcher matcher = grammar->NewMatcher().value();
  REQUIRE(matcher.Push(demo.tokenizer->IdOf("b").value()).ok());
  CHECK(matcher.done());
  std::vector<uint32_t> bits(vocabulary->mask_words(), ~0u);
  REQUIRE(matcher.FillMask(bits).ok());
  CHECK(std::set<uint32_t>(bits.begin(), bits.end()) == std::set<uint32_t>{0});
  const int32_t outside = demo.tokenizer->vocab_size();
  CHECK(GrammarVocabulary::Create(*demo.tokenizer, std::span(&outside, 1)).status().code() ==
        StatusCode::kInvalidArgument);
}

TEST_CASE("what is no grammar is an error that names the place") {
  const Model model = DemoModel();
  struct Case {
    GrammarKind kind;
    std::string text, says;
  };
  const std::vector<Case> cases = {
      {GrammarKind::kNone, "", "kind 0"},
      {GrammarKind::kRegex, "", "empty"},
      {GrammarKind::kRegex, "[.*", "regex"},
      {GrammarKind::kRegex, "a(?=b)", "look-around"},
      {GrammarKind::kRegex, "(?<!a)b", "look-around"},
      {GrammarKind::kRegex, "(a)\\1", "backreferences"},
      {GrammarKind::kRegex, "\xFF", "UTF-8"},
      {GrammarKind::kRegex, "[^\\x00-\\x{10FFFF}]", ""},
      {GrammarKind::kChoice, "", "JSON"},
      {GrammarKind::kChoice, "[]", "0 strings"},
      {GrammarKind::kChoice, "[\"a\",7]", "[1]"},
      {GrammarKind::kChoice, "[\"\"]", "[0]"},
      {GrammarKind::kChoice, "{}", "array"},
      {GrammarKind::kLark, "", "empty"},
      {GrammarKind::kLark, "  \n ", "empty"},
      {GrammarKind::kLark, "root ::= \"a\"", "GBNF"},
      {GrammarKind::kLark, "{\"grammars\":[]}", "JSON"},
      {GrammarKind::kLark, "a: \"b\"", "start"},
      {GrammarKind::kLark, "start: \"a", ""},
      {GrammarKind::kLark, "start: nothing", "nothing"},
      {GrammarKind::kLark, "start: /a(?=b)/", "look-around"},
      {GrammarKind::kLark, "start: %json {\"lenient\":true}", "%json"},
      {GrammarKind::kLark, "%llguidance {\"no_forcing\":true}\nstart: \"a\"", "%llguidance"},
      {GrammarKind::kLark, "start[max_tokens=3]: /a*/", "attributes"},
      {GrammarKind::kLark, "start: @other", "@name"},
      {GrammarKind::kLark, "start: <|no_such_token|>", "no_such_token"},
      {GrammarKind::kLark, "start: A\nA: /[ab]+/ & ~/a/", "`&`"},
      {GrammarKind::kLark, "start: A\nA: ~/a/", "`~`"},
      {GrammarKind::kJsonSchema, R"({"multipleOf":123456789})", "/multipleOf"},
      {GrammarKind::kJsonSchema, R"({"anyOf":[{"multipleOf":997},{"multipleOf":0.991}]})",
       "/anyOf/1/multipleOf"},
      {GrammarKind::kJsonSchema, "", "JSON"},
      {GrammarKind::kJsonSchema, "{", "JSON"},
      {GrammarKind::kJsonSchema, "7", "object or a boolean"},
      {GrammarKind::kJsonSchema, "false", "false"},
      {GrammarKind::kJsonSchema, R"({"type":"nonsense"})", "/type: type \"nonsense\""},
      {GrammarKind::kJsonSchema, R"({"properties":{"a":{"type":["string","text"]}}})",
       "/properties/a/type"},
      {GrammarKind::kJsonSchema, R"({"$ref":"https://example.com/s.json"})", "/$ref"},
      {GrammarKind::kJsonSchema, R"({"items":{"$ref":"other.json#/a"}})", "/items/$ref"},
      {GrammarKind::kJsonSchema, R"({"$ref":"#/$defs/no"})", "leads nowhere"},
      {GrammarKind::kJsonSchema, R"({"$ref":"#"})", ""},
      {GrammarKind::kJsonSchema, R"({"allOf":[{"$ref":"#"},{"type":"object"}]})", ""},
      {GrammarKind::kJsonSchema, R"J({"properties":{"a/b":{"pattern":"(?=x)"}}})J",
       "/properties/a~1b/pattern"},
      {GrammarKind::kJsonSchema, R"({"pattern":"[.*"})", "/pattern"},
      {GrammarKind::kJsonSchema, R"({"patternProperties":{"[.*":{}}})", "/patternProperties/[.*"},
      {GrammarKind::kJsonSchema, R"({"format":"regex"})", "format \"regex\""},
      {GrammarKind::kJsonSchema, R"({"format":"unknown"})", "format \"unknown\""},
      {GrammarKind::kJsonSchema, R"({"anyOf":[{"not":{}}]})", "/anyOf/0/not"},
      {GrammarKind::kJsonSchema, R"({"anyOf":[]})", "/anyOf"},
      {GrammarKind::kJsonSchema, R"({"enum":[]})", "/enum"},
      {GrammarKind::kJsonSchema,
       absl::StrCat(R"({"items":{"anyOf":[)", Joined(501, "{\"type\":\"array\"}"), "]}}"),
       "/items/anyOf"},
      {GrammarKind::kJsonSchema, absl::StrCat(R"({"required":[)", Joined(1300, "\"name\""), "]}"),
       "properties"},
      {GrammarKind::kJsonSchema, R"({"if":{}})", "/if"},
      {GrammarKind::kJsonSchema, R"({"uniqueItems":true})", "/uniqueItems"},
      {GrammarKind::kJsonSchema, R"({"propertyNames":{"pattern":"a"}})", "/propertyNames"},
      {GrammarKind::kJsonSchema, R"({"minLength":-1})", "/minLength"},
      {GrammarKind::kJsonSchema, R"({"maxItems":18446744073709551615})", "/maxItems"},
      {GrammarKind::kJsonSchema, R"({"maxItems":1e400})", "JSON"},
      {GrammarKind::kJsonSchema, R"({"multipleOf":0})", "/multipleOf"},
      {GrammarKind::kJsonSchema, R"({"minimum":"1"})", "/minimum"},
      {GrammarKind::kJsonSchema, R"({"required":[1]})", "/required"},
      {GrammarKind::kJsonSchema, R"({"type":"integer","minimum":5,"maximum":4})", ""},
      {GrammarKind::kJsonSchema, R"({"x-guidance":{"lenient":true},"not":{}})", "x-guidance"},
      {GrammarKind::kJsonSchema, R"({"items":{"x-guidance":{}}})", "/items/x-guidance"},
      {GrammarKind::kJsonSchema, R"({"oneOf":[{"type":"number"},{"type":"number","minimum":1}]})",
       "oneOf"},
      {GrammarKind::kParts, "[]", "parts"},
      {GrammarKind::kParts, "[{}]", "empty"},
      {GrammarKind::kParts, R"([{"schema":{"type":"x"}}])", "/type"},
      {GrammarKind::kParts, R"([{"token":99999999}])", "token"},
      {GrammarKind::kParts, R"([{"text":"a","regex":"b"}])", "further"},
      {GrammarKind::kParts, R"([{"repeat":[{"text":"a"}],"max":0}])", "repeat"},
  };
  for (const Case& c : cases) {
    INFO(static_cast<int>(c.kind) << " " << c.text);
    const auto grammar = Compile(model, c.kind, c.text);
    CHECK_FALSE(grammar.ok());
    if (grammar.ok()) continue;
    const std::string message(grammar.status().message());
    INFO(message);
    CHECK(grammar.status().code() == StatusCode::kInvalidArgument);
    CHECK_THAT(message, Catch::Contains(c.says));
    CHECK_FALSE(message.empty());
    CHECK(message.size() < 1000);
    CHECK_THAT(message, !Catch::Contains("non-verbose") && !Catch::Contains("backtrace"));
  }
}

TEST_CASE("a matcher that hits a limit fails alone") {
  const Model model = DemoModel();
  // One token matches each letter in thousands of ways.
  const auto grammar = Compile(model, GrammarKind::kLark,
                               "start: a* a* a* a* a* a* a* a*\na: b+ b+ b+\nb: c* c\nc: \"x\"\n");
  REQUIRE(grammar.ok());
  GrammarMatcher first = (*grammar)->NewMatcher().value();
  GrammarMatcher second = (*grammar)->NewMatcher().value();
  const int32_t x = model.tokenizer->IdOf("x").value();
  std::vector<uint32_t> bits(model.vocabulary->mask_words());
  absl::Status status;
  for (int i = 0; i < 3000 && status.ok(); ++i) {
    status = first.FillMask(bits);
    if (status.ok()) status = first.Push(x);
  }
  INFO(status);
  CHECK(status.code() == StatusCode::kResourceExhausted);
  CHECK(first.failed());
  CHECK(first.FillMask(bits).code() == StatusCode::kResourceExhausted);
  CHECK(first.Push(x).code() == StatusCode::kResourceExhausted);
  CHECK(first.Clone().value().failed());
  CHECK_FALSE(second.failed());
  CHECK(second.FillMask(bits).ok());
  CHECK(second.Push(x).ok());
  CHECK((*grammar)->NewMatcher().value().FillMask(bits).ok());
}

}  // namespace
}  // namespace baton
