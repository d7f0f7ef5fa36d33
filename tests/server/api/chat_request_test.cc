// Requests to the chat: messages, tools and what shapes the template, parsed or refused by path.
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "server/api/api_request.h"
#include "tests/server/api/refused_body.h"

namespace baton {
namespace {

TEST_CASE("chat: every wrong message is a 400 that names its place") {
  const BadCase kCases[] = {
      {R"({})", "messages", "missing_required_parameter"},
      {R"({"messages":"hello"})", "messages", "invalid_type"},
      {R"({"messages":[]})", "messages", "invalid_value"},
      {R"({"messages":["a"]})", "messages[0]", "invalid_type"},
      {R"({"messages":[{"content":"a"}]})", "messages[0].role", "invalid_type"},
      {R"({"messages":[{"role":5,"content":"a"}]})", "messages[0].role", "invalid_type"},
      {R"({"messages":[{"role":"king","content":"a"}]})", "messages[0].role", "invalid_value"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content", "missing_required_parameter"},
      {R"({"messages":[{"role":"user","content":null}]})", "messages[0].content",
       "missing_required_parameter"},
      {R"({"messages":[{"role":"user","content":7}]})", "messages[0].content", "invalid_type"},
      {R"({"messages":[{"role":"user","content":[7]}]})", "messages[0].content[0]", "invalid_type"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
       "messages[0].content[0].type", "unsupported_parameter"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
       "messages[0].content[0].text", "invalid_type"},
      {R"({"messages":[{"role":"assistant","reasoning_content":7}]})",
       "messages[0].reasoning_content", "invalid_type"},
      {R"({"messages":[{"role":"assistant","content":"a","reasoning":{"text":"hm"}}]})",
       "messages[0].reasoning", "invalid_type"},
      {R"({"messages":[{"role":"assistant","content":"a","thinking":["hm"]}]})",
       "messages[0].thinking", "invalid_type"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":{}})", "tools", "invalid_type"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":[{"x":1}]})", "tools[0].type",
       "missing_required_parameter"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function"}]})",
       "tools[0].function", "missing_required_parameter"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{}}]})",
       "tools[0].function.name", "missing_required_parameter"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"retrieval"}]})",
       "tools[0].type", "unsupported_parameter"},
      {R"({"messages":[{"role":"user","content":"a"}],"tool_choice":"auto"})", "tool_choice",
       "invalid_value"},
      {R"({"messages":[{"role":"user","content":"a"}],"tool_choice":"maybe"})", "tool_choice",
       "invalid_value"},
      {R"({"messages":[{"role":"user","content":"a"}],"tool_choice":7})", "tool_choice",
       "invalid_type"},
      {R"({"messages":[{"role":"user","content":"a"}],"logprobs":1})", "logprobs", "invalid_type"},
      {R"({"messages":[{"role":"user","content":"a"}],"top_logprobs":1})", "top_logprobs",
       "invalid_value"},
      {R"({"messages":[{"role":"user","content":"a"}],"logprobs":false,"top_logprobs":1})",
       "top_logprobs", "invalid_value"},
      {R"({"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":21})",
       "top_logprobs", "invalid_value"},
      {R"({"messages":[{"role":"user","content":"a"}],"chat_template":"x"})", "chat_template",
       "unsupported_parameter"},
      {R"({"messages":[{"role":"user","content":"a"}],"documents":["a"]})", "documents[0]",
       "invalid_type"},
      {R"({"messages":[{"role":"user","content":"a"}],"reasoning_effort":"much"})",
       "reasoning_effort", "invalid_value"},
      {R"({"messages":[{"role":"user","content":"a"}],"continue_final_message":true,
           "add_generation_prompt":true})",
       "continue_final_message", "invalid_value"},
  };
  for (const BadCase& bad : kCases) CheckRefused(Endpoint::kChat, bad);
}

TEST_CASE("chat parts are joined by line ends, roles and other keys kept in order") {
  ApiRequest request;
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kChat,
                                R"({"messages":[{"role":"developer","content":"d"},
                      {"name":"n","role":"user","content":[{"type":"text","text":"a"},
                                                          {"type":"text","text":"b"}]},
                      {"role":"assistant","content":null,"tool_calls":[]}],
          "tools":[{"type":"function","function":{"name":"f"}}]})",
                                &request));
  CHECK(request.messages ==
        R"([{"role":"system","content":"d"},{"name":"n","role":"user","content":"a\nb"},)"
        R"({"role":"assistant","content":null,"tool_calls":[]}])");
  CHECK(request.messages_in_parts ==
        R"([{"role":"system","content":"d"},{"name":"n","role":"user","content":[)"
        R"({"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
        R"({"role":"assistant","content":null,"tool_calls":[]}])");
  CHECK(request.tools == R"([{"type":"function","function":{"name":"f"}}])");
  ApiRequest none;
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kChat,
                                R"({"messages":[{"role":"user","content":"a"}],
                                    "tools":[{"type":"function","function":{"name":"f"}}],
                                    "tool_choice":"none"})",
                                &none));
  CHECK(none.tools.empty());
  CHECK(none.messages_in_parts.empty());
}

TEST_CASE("chat: logprobs, documents and variables of templates are understood") {
  const auto chat = [](const std::string& more) {
    ApiRequest parsed;
    const auto error = ParseApiRequest(
        Endpoint::kChat, absl::StrCat(R"({"messages":[{"role":"user","content":"a"}],)", more, "}"),
        &parsed);
    INFO((error ? error->message : ""));
    REQUIRE_FALSE(error);
    return parsed;
  };
  CHECK(chat(R"("logprobs":true)").top_logprobs == 0);
  CHECK(chat(R"("top_logprobs":20,"logprobs":true)").top_logprobs == 20);
  CHECK_FALSE(chat(R"("logprobs":false,"top_logprobs":0)").top_logprobs);
  CHECK(chat(R"("documents":[{"title":"t"}])").documents == R"([{"title":"t"}])");
  CHECK(chat(R"("reasoning_effort":"low")").template_variables == R"({"reasoning_effort":"low"})");
  CHECK(chat(R"("reasoning_effort":"high","chat_template_kwargs":{"a":1,"reasoning_effort":"x"})")
            .template_variables == R"({"a":1,"reasoning_effort":"high"})");
  // Variables may be as deep as the body.
  const std::string deep = std::string(50, '[') + std::string(50, ']');
  CHECK(chat(absl::StrCat(R"("reasoning_effort":"low","chat_template_kwargs":{"a":)", deep, "}"))
            .template_variables == absl::StrCat(R"({"a":)", deep, R"(,"reasoning_effort":"low"})"));
  const ApiRequest goes_on = chat(R"("continue_final_message":true)");
  CHECK(goes_on.continue_final_message);
  CHECK_FALSE(goes_on.add_generation_prompt);
  CHECK(chat(R"("continue_final_message":false)").add_generation_prompt);
}

TEST_CASE("arguments of tool calls reach templates as objects, and what is none is a 400") {
  const auto history = [](const std::string& arguments) {
    return absl::StrCat(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant",)",
                        R"("tool_calls":[{"id":"c","type":"function","function":{"name":"f",)",
                        R"("arguments":)", arguments, "}}]}]}");
  };
  const auto templates_see = [&](const std::string& arguments) {
    ApiRequest request;
    const auto error = ParseApiRequest(Endpoint::kChat, history(arguments), &request);
    INFO((error ? error->message : ""));
    REQUIRE_FALSE(error);
    const size_t begin = request.messages.find(R"("arguments":)") + 12;
    return request.messages.substr(begin, request.messages.size() - begin - 5);
  };
  CHECK(templates_see(R"("{\"b\":1,\"a\":[{\"c\":null}]}")") == R"({"b":1,"a":[{"c":null}]})");
  CHECK(templates_see(R"({"a":1})") == R"({"a":1})");
  CHECK(templates_see(R"("")") == "{}");
  CHECK(templates_see("null") == "{}");
  for (const char* bad : {R"("{a")", R"("[1]")", R"("7")", "7", "[]", R"("{\"a\":1,\"a\":2}")"}) {
    ApiRequest request;
    const auto error = ParseApiRequest(Endpoint::kChat, history(bad), &request);
    INFO(bad);
    REQUIRE(error);
    CHECK(error->status == 400);
    CHECK(error->param == "messages[1].tool_calls[0].function.arguments");
  }
}

TEST_CASE("tool_choice names tools of the request, or none") {
  struct Read {
    std::optional<ApiError> error;
    ApiRequest request;
    std::vector<std::string> Callable() const {
      std::vector<std::string> names;
      for (const CallableTool& tool : request.callable_tools)
        names.push_back(tool.name + (tool.strict ? "!" : ""));
      return names;
    }
  };
  const auto parse = [](const std::string& choice) {
    Read read;
    read.error = ParseApiRequest(
        Endpoint::kChat,
        absl::StrCat(R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function",)",
                     R"("function":{"name":"f","parameters":{"type":"object"}}},{"type":)",
                     R"("function","function":{"name":"g","strict":true}}],"tool_choice":)", choice,
                     "}"),
        &read.request);
    return read;
  };
  using Names = std::vector<std::string>;
  for (const char* automatic : {R"("auto")", "null"}) {
    const Read read = parse(automatic);
    CHECK_FALSE(read.error);
    CHECK(read.Callable() == Names{"f", "g!"});
    CHECK_FALSE(read.request.must_call());
    CHECK(read.request.callable_tools[0].parameters == R"({"type":"object"})");
    CHECK(read.request.callable_tools[1].parameters.empty());
  }
  const Read none = parse(R"("none")");
  CHECK(none.Callable().empty());
  CHECK(none.request.tools.empty());
  const Read required = parse(R"("required")");
  CHECK(required.request.tool_choice == ToolChoice::kRequired);
  CHECK(required.Callable() == Names{"f", "g!"});
  const Read named = parse(R"({"type":"function","function":{"name":"f"}})");
  CHECK(named.request.tool_choice == ToolChoice::kNamed);
  CHECK(named.Callable() == Names{"f!"});
  CHECK_FALSE(named.request.tools.empty());
  const std::string allowed = R"({"type":"allowed_tools","allowed_tools":{"mode":)";
  const std::string only_g = R"(,"tools":[{"type":"function","function":{"name":"g"}}]}})";
  CHECK(parse(allowed + R"("auto")" + only_g).Callable() == Names{"g!"});
  CHECK_FALSE(parse(allowed + R"("auto")" + only_g).request.must_call());
  CHECK(parse(allowed + R"("required")" + only_g).request.must_call());

  const auto param = [&](const std::string& choice) {
    const Read read = parse(choice);
    INFO(choice);
    REQUIRE(read.error);
    return read.error->param;
  };
  CHECK(param(R"({"type":"function","function":{"name":"h"}})") == "tool_choice.function.name");
  CHECK(param(R"({"type":"function"})") == "tool_choice.function");
  CHECK(param(R"({"type":"custom"})") == "tool_choice.type");
  CHECK(param(R"("maybe")") == "tool_choice");
  CHECK(param(R"({"type":"allowed_tools"})") == "tool_choice.allowed_tools");
  CHECK(param(allowed + R"("never")" + only_g) == "tool_choice.allowed_tools.mode");
  CHECK(param(allowed + R"("auto","tools":[]}})") == "tool_choice.allowed_tools.tools");
  CHECK(param(allowed + R"("auto","tools":[{"type":"function","function":{"name":"h"}}]}})") ==
        "tool_choice.allowed_tools.tools[0].function.name");
}

}  // namespace
}  // namespace baton
