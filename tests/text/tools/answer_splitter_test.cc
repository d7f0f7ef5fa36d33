// Answers of each form, drawn from seeds and cut into random pieces; answers by hand; texts that
// are made to be slow or to fill memory.
#include "text/tools/answer_splitter.h"

#include "tests/text/tools/random_answer.h"
#include "tests/text/tools/split_answer.h"
#include "text/detokenizer.h"

namespace baton {
namespace {

using random_answer::Example;
using split_answer::Answer;
using split_answer::Joiner;
using split_answer::Split;
using split_answer::SplitWhole;

constexpr AnswerFormat kLlama = {ToolFormat::kLlama3, ReasoningFormat::kNone};
constexpr AnswerFormat kHermes = {ToolFormat::kHermes, ReasoningFormat::kNone};
constexpr AnswerFormat kQwen3 = {ToolFormat::kHermes, ReasoningFormat::kThinkTags};
constexpr AnswerFormat kList = {ToolFormat::kMistralList, ReasoningFormat::kNone};
constexpr AnswerFormat kNamed = {ToolFormat::kMistralNamed, ReasoningFormat::kThinkBrackets};
constexpr AnswerFormat kR1 = {ToolFormat::kNone, ReasoningFormat::kThinkTags};
const std::vector<AnswerFormat> kFormats = {
    kLlama, {ToolFormat::kLlama3, ReasoningFormat::kThinkTags}, kHermes, kQwen3, kList, kNamed};

Answer Text(std::string content) { return {"", std::move(content), {}}; }

struct Row {
  AnswerFormat format;
  std::string text;
  Answer answer;
  bool inside_reasoning = false;
};

void CheckAll(const std::vector<Row>& rows) {
  std::mt19937_64 random(3);
  for (const Row& row : rows) {
    INFO(row.text);
    CHECK(SplitWhole(row.format, row.inside_reasoning, row.text) == row.answer);
    for (const size_t max_piece : {1, 2, 5})
      CHECK(Split(row.format, row.inside_reasoning, row.text, max_piece, random) == row.answer);
  }
}

}  // namespace

TEST_CASE("answers of each form come out whole, however they are cut") {
  for (size_t f = 0; f < kFormats.size(); ++f) {
    random_answer::Maker maker(kFormats[f], 100 + f);
    std::mt19937_64 random(f);
    size_t n_calls = 0, n_parallel = 0;
    for (int i = 0; i < 320; ++i) {
      const Example example = maker.Make();
      INFO("form " << f << ", answer " << i << ": " << example.text);
      n_calls += example.answer.calls.size();
      n_parallel += example.answer.calls.size() > 1;
      REQUIRE(SplitWhole(kFormats[f], example.inside_reasoning, example.text) == example.answer);
      for (const size_t max_piece : {1, 4, 40})
        REQUIRE(Split(kFormats[f], example.inside_reasoning, example.text, max_piece, random) ==
                example.answer);
    }
    CHECK(n_calls > 480);
    CHECK(n_parallel > 120);
  }
}

TEST_CASE("an answer that is cut off has told the beginnings of its calls") {
  std::mt19937_64 random(5);
  for (size_t f = 0; f < kFormats.size(); ++f) {
    random_answer::Maker maker(kFormats[f], 200 + f);
    for (int i = 0; i < 300; ++i) {
      const Example example = maker.Make();
      if (example.text.empty()) continue;
      const std::string_view text =
          std::string_view(example.text).substr(0, random() % example.text.size());
      INFO("form " << f << ": " << text);
      const Answer cut = Split(kFormats[f], example.inside_reasoning, text, 6, random);
      REQUIRE(cut.calls.size() <= example.answer.calls.size());
      for (size_t c = 0; c < cut.calls.size(); ++c) {
        REQUIRE(cut.calls[c].name == example.answer.calls[c].name);
        REQUIRE(example.answer.calls[c].arguments.starts_with(cut.calls[c].arguments));
        // Only the last one is cut.
        REQUIRE((cut.calls[c].whole || c + 1 == cut.calls.size()));
        REQUIRE(cut.calls[c].whole ==
                (cut.calls[c].arguments == example.answer.calls[c].arguments));
      }
    }
  }
}

TEST_CASE("arguments leave with their bytes, and content is held back only for a marker") {
  const std::string head = "<tool_call>\n{\"name\": \"f\", \"arguments\": ";
  AnswerSplitter splitter(kHermes);
  CHECK(splitter.Push("Yes").size() == 1);
  CHECK(splitter.settled() == 3);
  CHECK(splitter.Push(" <to").empty());
  CHECK(splitter.settled() == 3);
  CHECK(splitter.Push("p") == std::vector<AnswerEvent>{{AnswerEvent::kContent, 0, " <top", 8}});
  CHECK(splitter.Push(head).empty());
  const size_t begin = 8 + head.size();
  CHECK(splitter.Push("{") ==
        std::vector<AnswerEvent>{{AnswerEvent::kCallStart, 0, "f", begin + 1},
                                 {AnswerEvent::kCallArguments, 0, "{", begin + 1}});
  CHECK(splitter.Push("\"</tool_call>") ==
        std::vector<AnswerEvent>{{AnswerEvent::kCallArguments, 0, "\"</tool_call>", begin + 14}});
  CHECK(splitter.Push("\":1}}") ==
        std::vector<AnswerEvent>{{AnswerEvent::kCallArguments, 0, "\":1}", begin + 18},
                                 {AnswerEvent::kCallEnd, 0, "", begin + 18}});
  CHECK(splitter.Push("\n</tool_call>").empty());
  CHECK(splitter.settled() == begin + 32);
  CHECK(splitter.Finish().empty());
}

TEST_CASE("events of one piece say up to which byte each of them tells") {
  AnswerSplitter splitter(kHermes);
  const std::string marker = "<tool_call>", call = "{\"name\": \"f\", \"arguments\": {}";
  const size_t begin = 2 * marker.size();
  CHECK(splitter.Push(marker + marker + call + "}</tool_call> so") ==
        std::vector<AnswerEvent>{{AnswerEvent::kContent, 0, marker, marker.size()},
                                 {AnswerEvent::kCallStart, 0, "f", begin + call.size() - 1},
                                 {AnswerEvent::kCallArguments, 0, "{}", begin + call.size()},
                                 {AnswerEvent::kCallEnd, 0, "", begin + call.size()},
                                 {AnswerEvent::kContent, 0, "so", begin + call.size() + 16}});
}

TEST_CASE("what is a call, and what is text, for Hermes and Qwen") {
  CheckAll({
      {kHermes, "", Text("")},
      {kHermes, " Hi \n", Text(" Hi \n")},
      {kHermes, "a <tool_call", Text("a <tool_call")},
      {kHermes, "a <tool_call>", Text("a <tool_call>")},
      {kHermes, "a <tool_call> <b>", Text("a <tool_call> <b>")},
      {kHermes, "<tool_call>\n{\"name\": \"f\"", Text("<tool_call>\n{\"name\": \"f\"")},
      {kHermes, "<tool_call>{}</tool_call>", Text("<tool_call>{}</tool_call>")},
      {kHermes, "<tool_call>{\"x\": 1}</tool_call>", Text("<tool_call>{\"x\": 1}</tool_call>")},
      {kHermes, "<tool_call>{\"name\": \"\"}", Text("<tool_call>{\"name\": \"\"}")},
      {kHermes, "<tool_call>{\"name\": 1}", Text("<tool_call>{\"name\": 1}")},
      {kHermes, "<tool_call>{\"name\": \"\\x\"}", Text("<tool_call>{\"name\": \"\\x\"}")},
      {kHermes, "<tool_call>{'name': 'f'}", Text("<tool_call>{'name': 'f'}")},
      {kHermes, "<tool_call>{\"name\": \"f\"}</tool_call>", {"", "", {{"f", "{}"}}}},
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": \"x\"}</tool_call>",
       {"", "", {{"f", "\"x\""}}}},
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": null }", {"", "", {{"f", "null"}}}},
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": 12", {"", "", {{"f", "12", false}}}},
      // A byte that the object cannot have ends a number, and its call.
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": 12]", {"", "]", {{"f", "12"}}}},
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": 3d]x", {"", "]x", {{"f", "3d"}}}},
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": }",
       Text("<tool_call>{\"name\": \"f\", \"arguments\": }")},
      {kHermes,
       "<tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
       {"", "<tool_call>", {{"f", "{}"}}}},
      {kHermes,
       "<<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
       {"", "<", {{"f", "{}"}}}},
      // The closing marker is missing, twice.
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n<tool_call>{\"name\": \"g\", "
       "\"arguments\": {}}",
       {"", "", {{"f", "{}"}, {"g", "{}"}}}},
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_",
       {"", "", {{"f", "{}"}}}},
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {}}}</tool_call>",
       {"", "}</tool_call>", {{"f", "{}"}}}},
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"x\": [{}, \"}\"]}</tool_call> \n",
       {"", "", {{"f", "{}"}}}},
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {}, }</tool_call>.",
       {"", "}</tool_call>.", {{"f", "{}"}}}},
      {kHermes,
       "a <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n Done. ",
       {"", "aDone. ", {{"f", "{}"}}}},
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool _call>",
       {"", "</tool _call>", {{"f", "{}"}}}},
      {kHermes, "<tool _call>{\"name\": \"f\", \"arguments\": {}}",
       Text("<tool _call>{\"name\": \"f\", \"arguments\": {}}")},
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"name\": \"g\", \"arguments\": {}}",
       {"", "", {{"f", "{}"}}}},
      {kHermes, "</tool_call> [TOOL_CALLS] <think>", Text("</tool_call> [TOOL_CALLS] <think>")},
  });
}

TEST_CASE("what is a call, and what is text, for Llama 3") {
  const std::string call = "{\"name\": \"f\", \"parameters\": {\"a\": 1}}";
  const Answer once = {"", "", {{"f", "{\"a\": 1}"}}};
  CheckAll({
      {kLlama, call, once},
      {kLlama, "\n\n" + call + "\n", once},
      {kLlama, "<|python_tag|>" + call, once},
      {kLlama, "{\"type\": \"function\", " + call.substr(1), once},
      {kLlama, call + "; " + call, {"", "", {once.calls[0], once.calls[0]}}},
      {kLlama, call + ";" + call + "!", {"", "!", {once.calls[0], once.calls[0]}}},
      {kLlama, "Look: " + call, Text("Look: " + call)},
      {kLlama, "Look: <|python_tag|>" + call, {"", "Look:", once.calls}},
      // An answer in JSON.
      {kLlama, "{\"answer\": 5}", Text("{\"answer\": 5}")},
      {kLlama, "{\"name\": \"Ann\"}", Text("{\"name\": \"Ann\"}")},
      {kLlama, "{\"name\": \"Ann\", \"age\": 5}", Text("{\"name\": \"Ann\", \"age\": 5}")},
      {kLlama, "{\"name\": \"f\", \"parameters\": 1}",
       Text("{\"name\": \"f\", \"parameters\": 1}")},
      {kLlama, "{\"parameters\": {}}", Text("{\"parameters\": {}}")},
      {kLlama, "{}", Text("{}")},
      {kLlama, "{ x", Text("{ x")},
      {kLlama, "; " + call, Text("; " + call)},
      {kLlama, "<|python_tag|>print(1)", Text("<|python_tag|>print(1)")},
      {kLlama, "<|python_tag|>f.call(x=\"{}\")", Text("<|python_tag|>f.call(x=\"{}\")")},
  });
}

TEST_CASE("what is a call, and what is text, for Mistral") {
  const std::string call = "{\"name\": \"f\", \"arguments\": {\"a\": 1}}";
  const Answer once = {"", "", {{"f", "{\"a\": 1}"}}};
  for (const AnswerFormat& format : {kList, kNamed}) {
    CheckAll({
        {format, "[TOOL_CALLS] [" + call + "]", once},
        {format, "[TOOL_CALLS][" + call.substr(0, call.size() - 1) + ", \"id\": \"abc\"}]", once},
        {format,
         "[TOOL_CALLS][" + call + " , " + call + "]",
         {"", "", {once.calls[0], once.calls[0]}}},
        {format, "Hm [TOOL_CALLS][" + call + "] so", {"", "Hmso", once.calls}},
        {format, "[TOOL_CALLS][" + call, once},
        {format, "[TOOL_CALLS][" + call + ", 5]", {"", ", 5]", once.calls}},
        {format, "[TOOL_CALLS][" + call + "; " + call, {"", "; " + call, once.calls}},
        {format, "[TOOL_CALLS]f{\"a\": 1}", once},
        {format, "[TOOL_CALLS]f[ARGS]{\"a\": 1}", once},
        {format, "[TOOL_CALLS] f [ARGS] {\"a\": 1} ", once},
        {format,
         "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}",
         {"", "", {once.calls[0], {"g", "{}"}}}},
        {format, "[TOOL_CALLS]f[ARGS]{\"a\":", {"", "", {{"f", "{\"a\":", false}}}},
        {format, "[TOOL_CALLS]f[ARGS]", Text("[TOOL_CALLS]f[ARGS]")},
        {format, "[TOOL_CALLS][ARGS]{}", Text("[TOOL_CALLS][ARGS]{}")},
        {format, "[TOOL_CALLS]{}", Text("[TOOL_CALLS]{}")},
        {format, "[TOOL_CALLS][]", Text("[TOOL_CALLS][]")},
        {format, "[TOOL_CALLS]No tool\n{} fits", Text("[TOOL_CALLS]No tool\n{} fits")},
        {format, "[TOOL_CALLS]No tool {} fits", Text("[TOOL_CALLS]No tool {} fits")},
    });
  }
}

TEST_CASE("reasoning stands at the beginning") {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  CheckAll({
      {kR1, "<think>\nHm, 2 < 3\n</think>\n\nYes ", {"Hm, 2 < 3", "Yes ", {}}},
      {kR1, "\n<think>Hm</think>Yes", {"Hm", "Yes", {}}},
      {kR1, "Hm\n</think>\n\nYes", {"Hm", "Yes", {}}, true},
      {kR1, "<think>Hm", {"Hm", "", {}}},
      {kR1, "<think>Hm </thin", {"Hm </thin", "", {}}},
      {kR1, "<think>\n\n</think>\n\n", {"", "", {}}},
      {kR1, "<thin", Text("<thin")},
      {kR1, "<thi nk>Hm</think>", Text("<thi nk>Hm</think>")},
      {kR1, "<think>Hm</thi nk>", {"Hm</thi nk>", "", {}}},
      {kR1, " Yes <think>Hm</think>", Text(" Yes <think>Hm</think>")},
      {kR1, "<think>a</think>b<think>c</think>", {"a", "b<think>c</think>", {}}},
      {kR1, "<think>a<think>b</think>c", {"a<think>b", "c", {}}},
      {kR1, "</think>Yes", Text("</think>Yes")},
      {kR1, "</think>Yes", Text("Yes"), true},
      {kQwen3, "<think>\n" + call + "\n</think>\n\n" + call, {call, "", {{"f", "{}"}}}},
      {kQwen3, call + "</think>" + call, {call, "", {{"f", "{}"}}}, true},
      {kQwen3, call, {"", "", {{"f", "{}"}}}},
      {kNamed, "[THINK]Hm[/THINK]Yes[TOOL_CALLS]f[ARGS]{}", {"Hm", "Yes", {{"f", "{}"}}}},
      {{ToolFormat::kLlama3, ReasoningFormat::kThinkTags},
       "<think>Hm</think>\n\n{\"name\": \"f\", \"parameters\": {}}",
       {"Hm", "", {{"f", "{}"}}}},
  });
}

TEST_CASE("the bytes of reasoning are told apart") {
  AnswerSplitter splitter(kQwen3);
  const std::string text = " <think>\nHm </think>\nYes";
  splitter.Push(text);
  splitter.Finish();
  const size_t begin = text.find("\nHm"), end = text.find("</think>");
  for (size_t offset = 1; offset <= text.size(); ++offset)
    CHECK(splitter.IsReasoning(offset) == (offset > begin && offset <= end));
  AnswerSplitter open(kR1, true);
  open.Push("Hm");
  CHECK((open.IsReasoning(1) && open.IsReasoning(2) && !open.IsReasoning(0)));
  AnswerSplitter none(kHermes);
  none.Push("Hm");
  CHECK(!none.IsReasoning(1));
}

TEST_CASE("texts of random pieces of markers come out alike, however they are cut") {
  const std::vector<std::string> words = {"<tool_call>",
                                          "</tool_call>",
                                          "<think>",
                                          "</think>",
                                          "<|python_tag|>",
                                          "[TOOL_CALLS]",
                                          "[ARGS]",
                                          "[CALL_ID]",
                                          "[THINK]",
                                          "[/THINK]",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          "\"",
                                          "\"name\"",
                                          "\"f\"",
                                          "\"arguments\"",
                                          ":",
                                          ",",
                                          "\\",
                                          "\"parameters\"",
                                          " ",
                                          "\n",
                                          ";",
                                          "é",
                                          "f",
                                          "<",
                                          "{\"name\": \"f\", \"arguments\": {",
                                          "\"id\"",
                                          "0"};
  std::mt19937_64 random(7);
  for (int round = 0; round < 8000; ++round) {
    const AnswerFormat& format = kFormats[random() % kFormats.size()];
    const bool inside = random() % 4 == 0;
    std::string text;
    for (size_t n = random() % 24; n > 0; --n) text += words[random() % words.size()];
    INFO(text);
    const Answer whole = SplitWhole(format, inside, text);
    REQUIRE(Split(format, inside, text, 1, random) == whole);
    REQUIRE(Split(format, inside, text, 9, random) == whole);
  }
}

TEST_CASE("pieces with whole characters give events with whole characters") {
  std::mt19937_64 random(9);
  for (const AnswerFormat& format : kFormats) {
    random_answer::Maker maker(format, 11);
    for (int i = 0; i < 100; ++i) {
      const Example example = maker.Make();
      AnswerSplitter splitter(format, example.inside_reasoning);
      std::string bytes, piece;
      for (const char c : example.text) {
        bytes += c;
        MoveWholeCharacters(&bytes, &piece);
        if (random() % 3 == 0) continue;
        for (const AnswerEvent& event : splitter.Push(piece))
          REQUIRE(ValidUtf8(event.text) == event.text);
        piece.clear();
      }
    }
  }
}

TEST_CASE("long hostile texts: bounded memory, each byte told once") {
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": ";
  const std::vector<Row> rows = {
      {kHermes, "{", {}},
      {kLlama, "{", {}},
      {kLlama, "{\"type\":\"", {}},
      {kLlama, "{\"name\":\"f\",\"parameters\":{", {}},
      {kLlama, "{\"name\":\"f\",\"parameters\":{}};", {}},
      {kHermes, "<", {}},
      {kHermes, "<tool_call>", {}},
      {kHermes, "<tool_call>{", {}},
      {kHermes, "<tool_call>{\"type\":\"f\",", {}},
      {kHermes, "<tool_call>{\"name\":\"", {}},
      {kHermes, call + "{", {}},
      {kHermes, call + "[{\"", {}},
      {kHermes, call + "{}}</tool_call>", {}},
      {kHermes, call + "{}}<tool_cal</tool_cal", {}},
      {kHermes, " ", {}},
      {kHermes, std::string(300, ' ') + "<tool_call>", {}},
      {kQwen3, "\n", {}},
      {kQwen3, "<think>", {}},
      {kQwen3, "<think> </think", {}},
      {kList, "[TOOL_CALLS]", {}},
      {kList, "[TOOL_CALLS][", {}},
      {kList, "[TOOL_CALLS][{\"name\":\"f\"},", {}},
      {kNamed, "[TOOL_CALLS]f", {}},
      {kNamed, "[TOOL_CALLS] ", {}},
      {kNamed, "[TOOL_CALLS]f{}", {}},
      {kNamed, "[TOOL_CALLS]f[ARGS]{", {}},
  };
  constexpr size_t kBytes = 1 << 17;
  std::mt19937_64 random(13);
  for (const Row& row : rows) {
    INFO(row.text);
    std::string once = row.text, again = row.text;
    while (once.size() < kBytes) once += row.text;  // all of it again and again
    while (again.size() < kBytes) again += again.back();
    // After a beginning that may be a call, one that never becomes certain.
    const std::string begun = row.text + "{\"arguments\": {" + std::string(kBytes, '{');
    for (const std::string& text : {once, again, begun})
      REQUIRE(Split(row.format, false, text, 4096, random) ==
              Split(row.format, false, text, 300000, random));
  }
}

TEST_CASE("a megabyte of brackets is content, or the arguments of a cut call") {
  std::mt19937_64 random(17);
  const std::string brackets(1 << 20, '{');
  CHECK((Split(kLlama, false, brackets, 4096, random) == Text(brackets)));
  const std::string call = "{\"name\": \"f\", \"parameters\": ";
  CHECK((Split(kLlama, false, call + brackets, 4096, random) ==
         Answer{"", "", {{"f", brackets, false}}}));
}

TEST_CASE("a call whose name does not come within the bound is text, once") {
  const std::string open = "<tool_call>{\"arguments\": \"";
  for (const size_t n : {AnswerSplitter::kMaxHeld - 100, AnswerSplitter::kMaxHeld + 100}) {
    const std::string value(n, 'x'), text = open + value + "\", \"name\": \"f\"}</tool_call>";
    const Answer answer = SplitWhole(kHermes, false, text);
    if (n < AnswerSplitter::kMaxHeld)
      CHECK((answer == Answer{"", "", {{"f", "\"" + value + "\""}}}));
    else
      CHECK(answer == Text(text));
  }
}

}  // namespace baton
