// Random schemas, and random choices among the tokens that their grammars allow: what ends is JSON
// that an independent validator accepts.
#include "absl/strings/str_cat.h"
#include "tests/text/grammar_walk.h"
#include "tests/text/json_schema_check.h"

namespace baton {
namespace {

namespace json = boost::json;
using grammar_walk::Model;

// Makes schemas whose values are bounded in length.
class SchemaMaker {
 public:
  explicit SchemaMaker(uint64_t seed) : random_(seed) {}

  json::value Root() {
    json::object root = Object(3);
    root["$defs"] = json::object{{"leaf", Leaf()}, {"pair", Object(1)}};
    return root;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  json::value Any(int depth) {
    const int kind = Below(depth > 0 ? 10 : 5);
    if (kind < 5) return Leaf();
    if (kind < 7) return Object(depth - 1);
    if (kind < 9) return Array(depth - 1);
    if (Below(2) == 0)
      return json::object{{"$ref", Below(2) == 0 ? "#/$defs/leaf" : "#/$defs/pair"}};
    return json::object{{"anyOf", json::array{Leaf(), Any(depth - 1)}}};
  }

  json::value Leaf() {
    static const std::vector<std::string> kPatterns = {"^[a-z]{1,6}$", "^(ab|c)+d{0,3}$",
                                                       "^[A-Z][0-9]{2}-x$", "^\\w{2,4}\\.$",
                                                       "^a[b-y.-]{0,4}z$"};
    switch (Below(11)) {
      case 0:
        return json::object{{"type", "boolean"}};
      case 1:
        return json::object{{"type", json::array{"null", "boolean"}}};
      case 2: {
        const int low = Below(2000) - 1000;
        return json::object{{"type", "integer"}, {"minimum", low}, {"maximum", low + Below(300)}};
      }
      case 3: {
        const double low = (Below(4000) - 2000) / 8.0;
        return json::object{{"type", "integer"},
                            {"exclusiveMinimum", low},
                            {"maximum", low + 30},
                            {"multipleOf", 1 + Below(7)}};
      }
      case 4:
        return json::object{{"enum", json::array{"red", "green", 7, nullptr, "a \"b\" \\ /", 2.5}}};
      case 5:
        return json::object{{"const", json::object{{"k", json::array{1, "two", false}}}}};
      case 6:
        return json::object{{"type", "string"},
                            {"pattern", kPatterns[static_cast<size_t>(Below(5))]},
                            {"maxLength", 12}};
      case 7:
        return json::object{{"oneOf", json::array{json::object{{"const", "x"}},
                                                  json::object{{"type", "boolean"}}}}};
      case 8:
        return json::object{{"allOf", json::array{json::object{{"type", "integer"}, {"minimum", 3}},
                                                  json::object{{"maximum", 3 + Below(40)}}}}};
      default: {
        const int low = Below(4);
        return json::object{{"type", "string"}, {"minLength", low}, {"maxLength", low + Below(12)}};
      }
    }
  }

  json::object Object(int depth) {
    json::object properties;
    json::array required;
    const int n = 1 + Below(4);
    for (int i = 0; i < n; ++i) {
      const std::string name = absl::StrCat(i == 2 ? "a \"b\" é" : "field", i);
      properties[name] = Any(depth);
      if (Below(2) == 0) required.push_back(json::value(name));
    }
    return {{"type", "object"},
            {"properties", properties},
            {"required", required},
            {"additionalProperties", false}};
  }

  json::value Array(int depth) {
    const int low = Below(3);
    json::object array = {{"type", "array"}, {"minItems", low}, {"maxItems", low + Below(3)}};
    array["items"] = Any(depth);
    if (Below(4) == 0) array["prefixItems"] = json::array{Leaf()};
    return array;
  }

  std::mt19937_64 random_;
};

struct Tally {
  int ended = 0, cut = 0;
};

Tally WalkSchemas(const Model& model, int n_schemas, uint64_t seed, int max_tokens) {
  Tally tally;
  std::mt19937_64 random(seed);
  for (int i = 0; i < n_schemas; ++i) {
    const json::value schema = SchemaMaker(seed + static_cast<uint64_t>(i)).Root();
    const std::string text = json::serialize(schema);
    INFO("schema " << text << ", seed " << seed + static_cast<uint64_t>(i));
    GrammarMatcher matcher = grammar_walk::MatcherOf(model, GrammarKind::kJsonSchema, text);
    const auto walk = grammar_walk::RandomWalk(model, matcher, random, max_tokens);
    INFO("text " << walk.text);
    (walk.ended ? tally.ended : tally.cut) += 1;
    if (!walk.ended) continue;
    json::error_code error;
    const json::value value = json::parse(walk.text, error);
    REQUIRE_FALSE(error);
    CHECK(json_schema::Validator(schema).Valid(value));
  }
  return tally;
}

TEST_CASE("random tokens of 150 random schemas make valid JSON") {
  const Tally tally = WalkSchemas(grammar_walk::DemoModel(), 150, 100, 1500);
  INFO(tally.ended << " ended, " << tally.cut << " were cut");
  CHECK(tally.ended >= 135);
}

TEST_CASE("the same with SentencePiece tokens") {
  const Model model = grammar_walk::LoadModel(oracle::Data("tokenizers/llama2"), "</s>");
  const Tally tally = WalkSchemas(model, 50, 900, 1500);
  INFO(tally.ended << " ended, " << tally.cut << " were cut");
  CHECK(tally.ended >= 45);
}

TEST_CASE("a grammar of any kind nests at most 32 deep, and what is deeper is refused as that") {
  const Model model = grammar_walk::DemoModel();
  const auto times = [](int n, const std::string& text) {
    std::string all;
    for (int i = 0; i < n; ++i) all += text;
    return all;
  };
  const auto refusal = [&](GrammarKind kind, const std::string& text) {
    return std::string(Grammar::Compile({kind, text}, *model.vocabulary).status().message());
  };
  const auto schema = [&](int depth) {
    return refusal(GrammarKind::kJsonSchema,
                   times(depth, R"({"items":)") + "true" + times(depth, "}"));
  };
  const auto regex = [&](int depth) {
    return refusal(GrammarKind::kRegex, times(depth, "(") + "a" + times(depth, ")"));
  };
  const auto lark = [&](int depth) {
    return refusal(GrammarKind::kLark, "start: " + times(depth, "(") + "\"a\"" + times(depth, ")"));
  };
  CHECK(schema(32).empty());
  CHECK_THAT(schema(33), Catch::Contains("nest deeper than 32"));
  CHECK(regex(31).empty());  // the innermost counts
  CHECK_FALSE(regex(33).empty());
  CHECK(lark(28).empty());  // the parser of Lark itself refuses more than 29
  CHECK_THAT(lark(33), Catch::Contains("nests deeper than 32"));
}

TEST_CASE("any JSON object, cut or whole, is a beginning of JSON") {
  const Model model = grammar_walk::DemoModel();
  std::mt19937_64 random(5);
  for (int i = 0; i < 20; ++i) {
    GrammarMatcher matcher = grammar_walk::MatcherOf(model, GrammarKind::kJsonObject, "");
    const auto walk = grammar_walk::RandomWalk(model, matcher, random, 150);
    INFO(walk.text);
    json::stream_parser parser;
    json::error_code error;
    // A text that was cut may end within a character.
    const size_t whole =
        walk.ended ? walk.text.size() : walk.text.size() - std::min<size_t>(walk.text.size(), 4);
    parser.write_some(walk.text.data(), whole, error);
    CHECK_FALSE(error);
    if (walk.ended) CHECK(json::parse(walk.text).is_object());
  }
}

}  // namespace
}  // namespace baton
