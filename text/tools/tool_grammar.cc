#include "text/tools/tool_grammar.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

// Parts of kParts (docs/GRAMMAR.md), as JSON.
using Parts = std::vector<std::string>;

std::string Quoted(std::string_view text) {
  return boost::json::serialize(boost::json::string(text));
}

std::string List(const Parts& parts) { return absl::StrCat("[", absl::StrJoin(parts, ","), "]"); }

std::string TextPart(std::string_view text) {
  return absl::StrCat(R"({"text":)", Quoted(text), "}");
}

std::string RegexPart(std::string_view regex) {
  return absl::StrCat(R"({"regex":)", Quoted(regex), "}");
}

std::string OptionalPart(const Parts& parts) {
  return absl::StrCat(R"({"repeat":)", List(parts), R"(,"min":0,"max":1})");
}

std::string AnyPart(const std::vector<Parts>& options) {
  std::vector<std::string> lists;
  for (const Parts& parts : options) lists.push_back(List(parts));
  return absl::StrCat(R"({"any":)", List(lists), "}");
}

void Append(Parts* parts, const Parts& more) {
  parts->insert(parts->end(), more.begin(), more.end());
}

// Writes each byte as \xHH, which a regex reads inside a class, too.
std::string Escaped(std::string_view bytes) {
  std::string regex;
  for (const char c : bytes) absl::StrAppendFormat(&regex, "\\x%02X", static_cast<uint8_t>(c));
  return regex;
}

class GrammarText {
 public:
  GrammarText(const ToolGrammarRequest& request, const Tokenizer& tokenizer)
      : request_(request), tokenizer_(tokenizer) {}

  std::string Write() const {
    Parts parts = Reasoning();
    const bool has_content = request_.content.kind != GrammarKind::kNone;
    if (request_.must_call)
      Append(&parts, Calls());
    else if (IsFormat(ToolFormat::kNone) || request_.tools.empty())
      parts.push_back(ContentPart());
    else
      parts.push_back(
          AnyPart(has_content ? std::vector<Parts>{{ContentPart()}, Calls()} : TextOrCalls()));
    return List(parts);
  }

 private:
  bool IsFormat(ToolFormat format) const { return request_.format.tools == format; }

  // The token of that marker if it is one, because a model writes it so.
  std::string Marker(std::string_view marker) const {
    const auto id = tokenizer_.IdOf(marker);
    return id ? absl::StrCat(R"({"token":)", *id, "}") : TextPart(marker);
  }
  bool IsSpecial(std::string_view marker) const {
    const auto id = tokenizer_.IdOf(marker);
    return id && tokenizer_.IsSpecial(*id);
  }
  // Text up to a marker, and the marker. A special token is no text; other markers end the regex of
  // the text, because a lexer that goes on as far as it can does not stop before them.
  Parts TextAndMarker(std::string_view marker) const {
    if (IsSpecial(marker)) return {OptionalPart({RegexPart("(?s:.)+")}), Marker(marker)};
    return {RegexPart(absl::StrCat(RegexWithout(marker), Escaped(marker)))};
  }

  Parts Reasoning() const {
    const ReasoningMarkers markers = MarkersOf(request_.format.reasoning);
    if (markers.open.empty()) return {};
    Parts thought = TextAndMarker(markers.close);
    thought.push_back(OptionalPart({RegexPart(R"(\n{1,2})")}));
    if (request_.inside_reasoning) return thought;
    thought.insert(thought.begin(), Marker(markers.open));
    return {OptionalPart(thought)};
  }

  std::string ContentPart() const {
    const std::string& text = request_.content.text;
    switch (request_.content.kind) {
      case GrammarKind::kJsonSchema:
        return absl::StrCat(R"({"schema":)", text, "}");
      case GrammarKind::kRegex:
        return RegexPart(text);
      case GrammarKind::kChoice:
        return absl::StrCat(R"({"choice":)", text, "}");
      default:
        return R"({"schema":{"type":"object"}})";
    }
  }

  std::string Schema(const CallableTool& tool) const {
    const bool any = tool.parameters.empty() || !(request_.must_call || tool.strict);
    return absl::StrCat(R"({"schema":)", any ? R"({"type":"object"})" : tool.parameters, "}");
  }

  // One of the calls: `open`, the name, `between`, the arguments.
  Parts Call(const std::string& open, const std::string& between) const {
    std::vector<Parts> options;
    for (const CallableTool& tool : request_.tools)
      options.push_back({TextPart(Quoted(tool.name) + between), Schema(tool)});
    return {TextPart(open), AnyPart(options), TextPart("}")};
  }
  Parts NamedCall() const {
    std::vector<Parts> options;
    for (const CallableTool& tool : request_.tools)
      options.push_back({TextPart(tool.name), Marker(kArgumentsMarker), Schema(tool)});
    return {AnyPart(options)};
  }

  // A call, and further ones with `between` before each.
  Parts Row(const Parts& call, const Parts& between) const {
    if (!request_.parallel) return call;
    return {absl::StrFormat(R"({"repeat":%s,"between":%s,"min":1,"max":%d})", List(call),
                            List(between), kMaxParallelCalls)};
  }

  // Calls without the marker that opens the first.
  Parts CallsAfterMarker() const {
    const std::string open = R"({"name": )", arguments = R"(, "arguments": )";
    const std::string marker(CallMarker(request_.format.tools));
    switch (request_.format.tools) {
      case ToolFormat::kLlama3:
        return Row(Call(open, R"(, "parameters": )"), {TextPart("; ")});
      case ToolFormat::kHermes: {
        Parts call = Call("\n" + open, arguments);
        Append(&call, {TextPart("\n"), Marker(kCallEndMarker)});
        return Row(call, {TextPart("\n"), Marker(marker)});
      }
      case ToolFormat::kMistralList: {
        Parts parts = {RegexPart(R"( ?\[)")};
        Append(&parts, Row(Call(open, arguments), {TextPart(", ")}));
        parts.push_back(TextPart("]"));
        return parts;
      }
      case ToolFormat::kMistralNamed:
        return Row(NamedCall(), {Marker(marker)});
      case ToolFormat::kNone:
        break;
    }
    return {};
  }

  Parts Calls() const {
    Parts parts = CallsAfterMarker();
    if (!IsFormat(ToolFormat::kLlama3))
      parts.insert(parts.begin(), Marker(CallMarker(request_.format.tools)));
    return parts;
  }

  std::vector<Parts> TextOrCalls() const {
    if (IsFormat(ToolFormat::kLlama3))
      return {{RegexPart(R"(\s*[^\s{](?s:.)*)")}, CallsAfterMarker()};
    const std::string_view marker = CallMarker(request_.format.tools);
    Parts calls = TextAndMarker(marker);
    Append(&calls, CallsAfterMarker());
    return {{RegexPart(IsSpecial(marker) ? "(?s:.)+" : RegexWithout(marker))}, calls};
  }

  const ToolGrammarRequest& request_;
  const Tokenizer& tokenizer_;
};

}  // namespace

absl::StatusOr<GrammarSpec> ToolGrammar(const ToolGrammarRequest& request,
                                        const Tokenizer& tokenizer) {
  const bool has_content = request.content.kind != GrammarKind::kNone;
  const bool can_call = !request.tools.empty() && request.format.tools != ToolFormat::kNone;
  const bool strict = std::any_of(request.tools.begin(), request.tools.end(),
                                  [](const CallableTool& tool) { return tool.strict; });
  const bool holds_calls =
      request.must_call || strict || (!request.tools.empty() && !request.parallel);
  if (holds_calls && request.tools.empty())
    return absl::InvalidArgumentError("there is no tool to call");
  if (holds_calls && !can_call)
    return absl::InvalidArgumentError("the model's chat template has no form for calls of tools");
  if (!holds_calls && !has_content) return GrammarSpec();
  if (!can_call && request.format.reasoning == ReasoningFormat::kNone) return request.content;
  if (request.content.kind == GrammarKind::kLark && !request.must_call)
    return absl::InvalidArgumentError("a Lark grammar cannot stand beside reasoning or calls");
  return GrammarSpec{GrammarKind::kParts, GrammarText(request, tokenizer).Write()};
}

// The automaton that looks for marker m of n bytes is at k after m[0..k). From any k > 0, m[0]
// leads to 1 and any other byte than m[k] to 0. So a text is a row of: another byte than m[0]; or
// m[0], then starts that m[0] breaks off, then one that another byte breaks off. It may end in a
// start.
std::string RegexWithout(std::string_view marker) {
  const std::string first = Escaped(marker.substr(0, 1));
  std::vector<std::string> restarts, breaks, ends;
  for (size_t k = 1; k < marker.size(); ++k) {
    const std::string start = Escaped(marker.substr(1, k - 1));
    restarts.push_back(start + first);
    breaks.push_back(absl::StrCat(start, "[^", first, Escaped(marker.substr(k, 1)), "]"));
    ends.push_back(start);
  }
  const auto any = [](const std::vector<std::string>& options) {
    return absl::StrCat("(?:", absl::StrJoin(options, "|"), ")");
  };
  const std::string open = absl::StrCat(first, any(restarts), "*");
  return absl::StrCat("(?:[^", first, "]|", open, any(breaks), ")*(?:", open, any(ends), ")?");
}

}  // namespace baton
