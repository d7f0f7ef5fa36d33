// Grammars of calls with the tokenizer of each family: what random choices of allowed tokens write
// is read by AnswerSplitter as calls with arguments by the schema; and what a grammar takes and
// refuses.
#include "text/tools/tool_grammar.h"

#include <regex>

#include "tests/text/grammar_walk.h"
#include "tests/text/json_schema_check.h"
#include "tests/text/tools/split_answer.h"
#include "text/detokenizer.h"

namespace baton {
namespace {

using grammar_walk::Model;
using split_answer::Answer;
using split_answer::Call;

// Values are short, so that random walks end.
const std::string kFindSchema =
    R"({"type": "object", "properties": {"query": {"type": "string", "maxLength": 6},
        "n": {"type": "integer", "minimum": 0, "maximum": 99}, "where": {"$ref": "#/$defs/place"}},
        "required": ["query", "n", "where"], "additionalProperties": false,
        "$defs": {"place": {"enum": ["here", "there", "<tool_call>"]}},
        "x-guidance": {"whitespace_flexible": false}})";
const std::string kNowSchema =
    R"({"type": "object", "properties": {}, "additionalProperties": false})";

struct Family {
  std::string name;
  AnswerFormat format;
  Model model;
};

const std::vector<Family>& Families() {
  static const std::vector<Family> families = [] {
    std::vector<Family> list;
    const auto add = [&](const std::string& name, AnswerFormat format, const std::string& end) {
      list.push_back(
          {name, format, grammar_walk::LoadModel(oracle::Data("tokenizers/" + name), end)});
    };
    add("llama3", {ToolFormat::kLlama3, ReasoningFormat::kNone}, "<|eot_id|>");
    add("qwen2", {ToolFormat::kHermes, ReasoningFormat::kNone}, "<|im_end|>");
    add("qwen2", {ToolFormat::kHermes, ReasoningFormat::kThinkTags}, "<|im_end|>");
    add("mistral", {ToolFormat::kMistralList, ReasoningFormat::kNone}, "</s>");
    add("mistral", {ToolFormat::kMistralNamed, ReasoningFormat::kThinkBrackets}, "</s>");
    return list;
  }();
  return families;
}

ToolGrammarRequest TwoTools(const Family& family, bool must_call) {
  ToolGrammarRequest request;
  request.format = family.format;
  request.tools = {{"find", kFindSchema, true}, {"find_now", kNowSchema, true}};
  request.must_call = must_call;
  return request;
}

GrammarMatcher MatcherOf(const Family& family, const ToolGrammarRequest& request) {
  const auto spec = ToolGrammar(request, *family.model.tokenizer);
  INFO(spec.status());
  REQUIRE(spec.ok());
  return grammar_walk::MatcherOf(family.model, spec->kind, spec->text);
}

Answer Read(const Family& family, const std::vector<int32_t>& tokens, bool inside_reasoning) {
  DetokenizerOptions options;
  for (const std::string_view marker : AllMarkers(family.format))
    if (const auto id = family.model.tokenizer->IdOf(marker)) options.shown_tokens.push_back(*id);
  Detokenizer detokenizer(family.model.tokenizer.get(), options);
  AnswerSplitter splitter(family.format, inside_reasoning);
  split_answer::Joiner joiner;
  size_t n_pushed = 0;
  const auto push = [&](const std::string& piece) {
    n_pushed += piece.size();
    joiner.Add(splitter.Push(piece), n_pushed);
  };
  for (const int32_t token : tokens) push(detokenizer.Push(token));
  push(detokenizer.Finish());
  joiner.Add(splitter.Finish(), n_pushed);
  REQUIRE(joiner.ordered());
  return joiner.answer();
}

// After another token, because some tokenizers put a space before the first word.
std::vector<int32_t> Encode(const Family& family, const std::string& text) {
  const int32_t end = family.model.end;
  const std::string before(family.model.tokenizer->TokenBytes(end));
  auto tokens = family.model.tokenizer->Encode(before + text, false).value();
  REQUIRE(tokens.front() == end);
  tokens.erase(tokens.begin());
  return tokens;
}

// Whether the grammar takes the text, which spells markers as their tokens.
bool Takes(const Family& family, const ToolGrammarRequest& request, const std::string& text) {
  INFO(text);
  GrammarMatcher matcher = MatcherOf(family, request);
  for (const int32_t token : Encode(family, text))
    if (!matcher.Push(token).ok()) return false;
  return matcher.accepting();
}

void CheckCall(const Call& call) {
  INFO(call.name << " " << call.arguments);
  CHECK(call.whole);
  REQUIRE((call.name == "find" || call.name == "find_now"));
  const json_schema::Validator validator(
      boost::json::parse(call.name == "find" ? kFindSchema : kNowSchema));
  boost::system::error_code error;
  const auto value = boost::json::parse(call.arguments, error);
  REQUIRE(!error);
  CHECK(validator.Valid(value));
}

// A call of `name` as the models of the family write it, marker and all.
std::string Written(const Family& family, const std::string& name, const std::string& arguments) {
  const std::string open = "{\"name\": \"" + name + "\", ";
  switch (family.format.tools) {
    case ToolFormat::kLlama3:
      return open + "\"parameters\": " + arguments + "}";
    case ToolFormat::kHermes:
      return "<tool_call>\n" + open + "\"arguments\": " + arguments + "}\n</tool_call>";
    case ToolFormat::kMistralList:
      return "[TOOL_CALLS][" + open + "\"arguments\": " + arguments + "}]";
    default:
      return "[TOOL_CALLS]" + name + "[ARGS]" + arguments;
  }
}

const std::string kFindArguments = R"({"query":"né","n":7,"where":"there"})";

}  // namespace

TEST_CASE("a model that must call writes calls by the schemas, in its own form") {
  std::mt19937_64 random(1);
  for (const Family& family : Families()) {
    if (family.format.reasoning != ReasoningFormat::kNone) continue;
    int n_ended = 0, n_parallel = 0;
    for (int i = 0; i < 12; ++i) {
      GrammarMatcher matcher = MatcherOf(family, TwoTools(family, true));
      const auto walk = grammar_walk::RandomWalk(family.model, matcher, random, 400);
      INFO(family.name << ": " << walk.text);
      const Answer answer = Read(family, walk.tokens, false);
      CHECK(answer.reasoning.empty());
      if (!walk.ended) continue;
      ++n_ended;
      CHECK(answer.content.empty());
      REQUIRE(!answer.calls.empty());
      n_parallel += answer.calls.size() > 1;
      for (const Call& call : answer.calls) CheckCall(call);
    }
    INFO(family.name);
    CHECK(n_ended >= 6);
    CHECK(n_parallel >= 1);
  }
}

TEST_CASE("the form that a model was trained on is taken, other forms and names are not") {
  for (const Family& family : Families()) {
    INFO(family.name);
    ToolGrammarRequest request = TwoTools(family, true);
    const std::string find = Written(family, "find", kFindArguments);
    const std::string now = Written(family, "find_now", "{}");
    CHECK(Takes(family, request, find));
    CHECK(Takes(family, request, now));
    CHECK(!Takes(family, request, Written(family, "find", "{}")));
    CHECK(!Takes(family, request, Written(family, "fin", "{}")));
    CHECK(!Takes(family, request, "No."));
    CHECK(!Takes(family, request, ""));
    std::string both;
    switch (family.format.tools) {
      case ToolFormat::kLlama3:
        both = find + "; " + now;
        break;
      case ToolFormat::kHermes:
        both = find + "\n" + now;
        break;
      case ToolFormat::kMistralList:
        both = find.substr(0, find.size() - 1) + ", " +
               now.substr(std::string("[TOOL_CALLS][").size());
        break;
      default:
        both = find + now;
    }
    CHECK(Takes(family, request, both));
    CHECK(Read(family, Encode(family, both), false).calls.size() == 2);
    request.parallel = false;
    CHECK(Takes(family, request, find));
    CHECK(!Takes(family, request, both));
    // A named choice.
    request.tools.pop_back();
    CHECK(Takes(family, request, find));
    CHECK(!Takes(family, request, now));
  }
}

TEST_CASE("without a duty to call, text is free up to the marker, and then the schema holds") {
  for (const Family& family : Families()) {
    INFO(family.name);
    ToolGrammarRequest request = TwoTools(family, false);
    const std::string find = Written(family, "find", kFindArguments);
    for (const std::string text : {"No.", "a < b, <tool", "\n\n né 日本 \"x\"", "f {}; [TOOL"})
      CHECK(Takes(family, request, text));
    CHECK(Takes(family, request, find));
    CHECK(!Takes(family, request, Written(family, "find", "{}")));
    CHECK(!Takes(family, request, find + " and so on"));
    const bool marked = family.format.tools != ToolFormat::kLlama3;
    if (marked) {
      CHECK(Takes(family, request, "I look. <\n" + find));
      CHECK(!Takes(family, request, "I look. " + Written(family, "find", "{}")));
    }
    // Tools that are not strict take any object.
    request.tools[0].strict = false;
    CHECK(Takes(family, request, Written(family, "find", R"({"x": [1]})")));
    CHECK(!Takes(family, request, Written(family, "find_now", R"({"x": [1]})")));
    request.tools[1].strict = false;
    CHECK(ToolGrammar(request, *family.model.tokenizer).value() == GrammarSpec());
    request.parallel = false;
    CHECK(Takes(family, request, find));
    if (marked) CHECK(!Takes(family, request, find + "\n" + find));
  }
}

TEST_CASE("a model may reason before it calls") {
  for (const Family& family : Families()) {
    const auto markers = MarkersOf(family.format.reasoning);
    if (markers.open.empty()) continue;
    INFO(family.name);
    const std::string open(markers.open), close(markers.close);
    const std::string find = Written(family, "find", kFindArguments);
    ToolGrammarRequest request = TwoTools(family, true);
    CHECK(Takes(family, request, open + "\nHm <\n" + close + "\n\n" + find));
    CHECK(Takes(family, request, open + close + find));
    CHECK(!Takes(family, request, open + "Hm" + close + "No."));
    CHECK(!Takes(family, request, open + "Hm"));
    request.inside_reasoning = true;
    CHECK(Takes(family, request, "Hm\n" + close + "\n\n" + find));
    CHECK(!Takes(family, request, find));
    request.must_call = false;
    CHECK(Takes(family, request, "Hm\n" + close + "\n\nNo."));
    CHECK(!Takes(family, request, "Hm\n" + close + Written(family, "find", "{}")));
    request.inside_reasoning = false;
    CHECK(Takes(family, request, open + "Hm\n" + close + "\n\nNo."));
    CHECK(Takes(family, request, "No."));
  }
}

TEST_CASE("the end of reasoning may come between characters, not inside one") {
  const Family& qwen = Families()[2];
  ToolGrammarRequest request = TwoTools(qwen, true);
  request.inside_reasoning = true;
  GrammarMatcher matcher = MatcherOf(qwen, request);
  const int32_t close = qwen.model.tokenizer->IdOf("</think>").value();
  const auto may_close = [&] {
    const std::vector<int32_t> allowed = grammar_walk::Allowed(qwen.model, matcher);
    return std::binary_search(allowed.begin(), allowed.end(), close);
  };
  const std::vector<int32_t> bytes = Encode(qwen, "\U0001F986");
  REQUIRE(bytes.size() > 1);
  CHECK(may_close());
  for (size_t i = 0; i < bytes.size(); ++i) {
    REQUIRE(matcher.Push(bytes[i]).ok());
    CHECK(may_close() == (i + 1 == bytes.size()));
  }
}

TEST_CASE("a marker that is a special token is written as that token") {
  const Family& mistral = Families()[3];
  GrammarMatcher matcher = MatcherOf(mistral, TwoTools(mistral, true));
  CHECK(grammar_walk::Allowed(mistral.model, matcher) ==
        std::vector<int32_t>{mistral.model.tokenizer->IdOf("[TOOL_CALLS]").value()});
  const Family& qwen = Families()[1];
  matcher = MatcherOf(qwen, TwoTools(qwen, true));
  CHECK(grammar_walk::Allowed(qwen.model, matcher) ==
        std::vector<int32_t>{qwen.model.tokenizer->IdOf("<tool_call>").value()});
}

TEST_CASE("what cannot be enforced is refused") {
  const Family& family = Families()[0];
  ToolGrammarRequest request;
  request.format = family.format;
  request.must_call = true;
  CHECK(ToolGrammar(request, *family.model.tokenizer).status().code() ==
        absl::StatusCode::kInvalidArgument);
  request.tools = {{"f"}};
  CHECK(Takes(family, request, Written(family, "f", R"({"any": 1})")));
  request.format.tools = ToolFormat::kNone;
  CHECK(ToolGrammar(request, *family.model.tokenizer).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("content in a form of its own stands beside calls and after reasoning") {
  for (const Family& family : Families()) {
    INFO(family.name);
    const std::string call = Written(family, "find_now", "{}");
    ToolGrammarRequest request = TwoTools(family, false);
    for (CallableTool& tool : request.tools) tool.strict = false;
    request.content = {GrammarKind::kChoice, R"(["red","green"])"};
    CHECK(Takes(family, request, "green"));
    CHECK(!Takes(family, request, "blue"));
    CHECK(!Takes(family, request, "green" + call));
    if (family.format.tools != ToolFormat::kLlama3) CHECK(Takes(family, request, call));
    const ReasoningMarkers markers = MarkersOf(family.format.reasoning);
    const std::string thought = std::string(markers.open) + "hm" + std::string(markers.close);
    const bool reasons = family.format.reasoning != ReasoningFormat::kNone;
    if (reasons) CHECK(Takes(family, request, thought + "red"));

    request.tools.clear();
    const auto alone = ToolGrammar(request, *family.model.tokenizer);
    REQUIRE(alone.ok());
    CHECK((*alone == request.content) == !reasons);
    CHECK(Takes(family, request, "red"));
    if (reasons) CHECK(Takes(family, request, thought + "red"));
    for (const GrammarSpec& content :
         {GrammarSpec{GrammarKind::kJsonObject, ""},
          GrammarSpec{GrammarKind::kJsonSchema, R"({"required":["a"],"type":"object"})"},
          GrammarSpec{GrammarKind::kRegex, R"(\{"a": ?[0-9]+\})"}}) {
      request.content = content;
      CHECK(Takes(family, request, R"({"a": 1})"));
      CHECK(!Takes(family, request, "a"));
    }
    request.content = {GrammarKind::kLark, "start: \"a\""};
    CHECK(ToolGrammar(request, *family.model.tokenizer).ok() == !reasons);
  }
}

TEST_CASE("128 tools compile") {
  for (const Family& family : Families()) {
    ToolGrammarRequest request;
    request.format = family.format;
    const std::string schema =
        R"({"type":"object","properties":{"query":{"type":"string","description":"What to look for"},
            "n":{"type":"integer"},"where":{"type":"string","description":"A place, or a region"}},
            "required":["query","n","where"],"additionalProperties":false})";
    for (int i = 0; i < 128; ++i)
      request.tools.push_back({"tool_" + std::to_string(i), schema, true});
    for (const bool must_call : {true, false}) {
      request.must_call = must_call;
      INFO(family.name);
      CHECK(Takes(family, request, Written(family, "tool_12", kFindArguments)));
      CHECK(!Takes(family, request, Written(family, "tool_128", kFindArguments)));
    }
  }
}

TEST_CASE("the regex of texts without a marker") {
  std::mt19937_64 random(5);
  for (const std::string marker : {"<tool_call>", "</think>", "ab", "abc"}) {
    const std::regex without(RegexWithout(marker));
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      for (size_t n = random() % 12; n > 0; --n)
        text += random() % 4 == 0 ? std::string(1, marker[random() % marker.size()])
                                  : marker.substr(0, random() % (marker.size() + 1));
      INFO(text);
      REQUIRE(std::regex_match(text, without) == (text.find(marker) == text.npos));
    }
  }
}

}  // namespace baton
