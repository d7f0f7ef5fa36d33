// Answers of models with tools, drawn from a seed: reasoning, content and calls in the form of a
// model, and what a client is to get of them.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/text/tools/joined_answer.h"

namespace baton::random_answer {

struct Example {
  std::string text;
  bool inside_reasoning = false;
  split_answer::Answer answer;
};

class Maker {
 public:
  Maker(const AnswerFormat& format, uint64_t seed) : format_(format), random_(seed) {}

  Example Make() {
    Example example;
    if (format_.reasoning != ReasoningFormat::kNone && Below(3) > 0) Reason(&example);
    const int n_calls = Below(6) == 0 ? 0 : 1 + Below(4);
    const bool bare = format_.tools == ToolFormat::kLlama3 && n_calls > 0 && Below(2) == 0;
    if (!bare && Below(3) > 0) {
      example.answer.content = Words();
      example.text += example.answer.content;
    }
    if (n_calls > 0) Calls(n_calls, bare, &example);
    return example;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  std::string Pick(const std::vector<std::string>& options) {
    return options[static_cast<size_t>(Below(static_cast<int>(options.size())))];
  }
  std::string Space() { return Pick({"", "", "", "\n", " ", "\n\n", "\t "}); }

  // Text with beginnings of markers, without space at its ends.
  std::string Words() {
    std::string text = Pick({"I", "né", "日本", "Let me see", "<", "a {", "[", "<<tool"});
    for (int n = Below(6); n > 0; --n)
      text += Pick({" ", "\n", ""}) +
              Pick({"look", "<tool_cal", "<tool", "<", "</", "[TOOL_CALL", "[TOOL", "<|python_ta",
                    "{\"name\": \"x\"}", "😀", "</tool_call", "[ARGS", ";", "}", "<thin", "."});
    return text;
  }

  void Reason(Example* example) {
    const std::string open(MarkersOf(format_.reasoning).open);
    const std::string close(MarkersOf(format_.reasoning).close);
    example->inside_reasoning = Below(2) == 0;
    if (!example->inside_reasoning) example->text = Space() + open;
    if (Below(5) > 0) {
      example->answer.reasoning = Words();
      if (Below(3) == 0)
        example->answer.reasoning += " " + std::string(CallMarker(format_.tools)) + "{\"name\"!";
    }
    absl::StrAppend(&example->text, Space(), example->answer.reasoning, Space(), close, Space());
  }

  // The inside of a JSON string, as written.
  std::string StringInside() {
    std::string text;
    for (int n = Below(7); n > 0; --n)
      text += Pick({"a",
                    " ",
                    "\\\"",
                    "\\\\",
                    "\\n",
                    "{",
                    "}",
                    "[",
                    "]",
                    ",",
                    ":",
                    "é",
                    "日本",
                    "😀",
                    "\\u00e9",
                    "\\ud83d\\ude00",
                    "<tool_call>",
                    "</tool_call>",
                    "[TOOL_CALLS]",
                    "[ARGS]",
                    "</think>",
                    "<|python_tag|>",
                    "; ",
                    "\\/",
                    "name"});
    return text;
  }
  std::string Value(int depth) {
    switch (Below(depth > 0 ? 8 : 5)) {
      case 0:
        return Pick({"0", "-1", "12.5", "1e-3", "123456789012345678901"});
      case 1:
        return Pick({"true", "false", "null"});
      case 2:
      case 3:
      case 4:
        return absl::StrCat("\"", StringInside(), "\"");
      case 5: {
        std::string text = "[" + Space();
        for (int n = Below(4), i = 0; i < n; ++i)
          absl::StrAppend(&text, i > 0 ? "," : "", Space(), Value(depth - 1), Space());
        return text + "]";
      }
      default:
        return Object(depth - 1);
    }
  }
  std::string Object(int depth) {
    std::string text = "{" + Space();
    for (int n = Below(4), i = 0; i < n; ++i)
      absl::StrAppend(&text, i > 0 ? "," : "", Space(), "\"", StringInside(), "\"", Space(), ":",
                      Space(), Value(depth), Space());
    return text + "}";
  }

  // The object of a call, its keys in any order.
  std::string CallText(const split_answer::Call& call, const std::string& name_written) {
    const std::string name = absl::StrCat("\"name\"", Space(), ":", Space(), name_written);
    const bool llama = format_.tools == ToolFormat::kLlama3;
    const std::string arguments = absl::StrCat(llama ? "\"parameters\"" : "\"arguments\"", Space(),
                                               ":", Space(), call.arguments);
    const std::string extra = Pick({"\"type\": \"function\"", "\"id\": \"}{\"", "\"id\": 17"});
    switch (Below(6)) {
      case 0:
        return absl::StrCat("{", arguments, Space(), ",", Space(), name, "}");
      case 1:
        return absl::StrCat("{", extra, ", ", name, ", ", arguments, Space(), "}");
      case 2:
        return absl::StrCat("{", name, ", ", arguments, ", ", extra, Space(), "}");
      case 3:
        return absl::StrCat("{", arguments, ", ", extra, ", ", name, "}");
      default:
        return absl::StrCat("{", Space(), name, ",", Space(), arguments, Space(), "}");
    }
  }

  void Calls(int n_calls, bool bare, Example* example) {
    const std::string marker(CallMarker(format_.tools));
    std::string& text = example->text;
    for (int i = 0; i < n_calls; ++i) {
      split_answer::Call call;
      std::string written;
      if (format_.tools != ToolFormat::kMistralNamed && Below(4) == 0) {
        call.name = "né\"1";
        written = Pick({"\"n\\u00e9\\\"1\"", "\"né\\\"1\"", "\"\\u006e\\u00e9\\u00221\""});
      } else {
        call.name = Pick({"find", "get_weather", "a.b-c", "x"});
        written = absl::StrCat("\"", call.name, "\"");
      }
      call.arguments = Object(3);
      const std::string object = CallText(call, written);
      switch (format_.tools) {
        case ToolFormat::kHermes:
          absl::StrAppend(&text, Space(), marker, Space(), object, Space(),
                          std::string(kCallEndMarker));
          break;
        case ToolFormat::kLlama3:
          if (i > 0) text += Pick({"; ", ";", "\n", ""});
          if ((i == 0 && !bare) || Below(4) == 0) absl::StrAppend(&text, Space(), marker);
          absl::StrAppend(&text, Space(), object);
          break;
        case ToolFormat::kMistralList:
          absl::StrAppend(&text, i == 0 ? absl::StrCat(Space(), marker, Space(), "[") : ",",
                          Space(), object, Space(), i == n_calls - 1 ? "]" : "");
          break;
        default:
          absl::StrAppend(&text, Space(), marker, Space(), call.name, Pick({"", "[CALL_ID]ab12"}),
                          std::string(kArgumentsMarker), Space(), call.arguments);
      }
      example->answer.calls.push_back(std::move(call));
    }
    text += Space();
  }

  const AnswerFormat format_;
  std::mt19937_64 random_;
};

}  // namespace baton::random_answer
