// Names of the reasoning in a chat's answers (server.reasoning_names), whole, streamed and stored,
// and in the messages of clients.
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/server/api/served_api.h"

namespace baton {
namespace {

namespace json = boost::json;

// A server whose model reasons until its answer ends: the prompt stops inside the reasoning, and
// the fake cluster says its last token again and again.
std::unique_ptr<Served> Reasoner(const ApiFrontOptions& options) {
  auto served = std::make_unique<Served>(HttpServerOptions{}, options);
  served->model->answer_format.reasoning = ReasoningFormat::kThinkTags;
  served->model->chat_template = *ChatTemplate::FromSource(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}", "");
  return served;
}

std::string Chat(const std::string& more = "") {
  return absl::StrCat(
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"<think>a"}],)",
      R"("continue_final_message":true,"max_tokens":3)", more, "}");
}

// Members of the message or of all deltas that tell the reasoning, which must be `wanted`, each
// with the whole of it.
void CheckNames(const json::array& parts, const std::set<std::string>& wanted) {
  std::map<std::string, std::string> told;
  for (const json::value& part : parts)
    for (const char* name : {"reasoning_content", "reasoning"})
      if (const json::value* text = part.as_object().if_contains(name))
        told[name] += std::string(text->as_string());
  std::set<std::string> names;
  for (const auto& [name, text] : told) {
    CHECK(text == "aaa");
    names.insert(name);
  }
  CHECK(names == wanted);
}

json::value Parsed(const absl::StatusOr<HttpResponse>& response) {
  REQUIRE(response.ok());
  INFO(response->body);
  REQUIRE(response->status == 200);
  return json::parse(response->body);
}

TEST_CASE("reasoning has the names that the setting says, whole, streamed and stored") {
  const std::map<std::string, std::set<std::string>> kWanted = {
      {"both", {"reasoning_content", "reasoning"}},
      {"reasoning_content", {"reasoning_content"}},
      {"reasoning", {"reasoning"}}};
  for (const auto& [setting, names] : kWanted) {
    CAPTURE(setting);
    ApiFrontOptions options;
    Settings settings;
    DeclareApiFront(&options, &settings);
    CHECK(settings.Find("server.reasoning_names")->get() == "both");
    REQUIRE(settings.SetFlag("server.reasoning_names", setting, "--flag").ok());
    const auto served = Reasoner(options);
    const HttpClient client = served->Client();

    const json::value whole = Parsed(client.Post("/v1/chat/completions", Chat()));
    CheckNames({whole.at("choices").at(0).at("message")}, names);

    json::array deltas;
    std::string id;
    const auto streamed =
        client.Post("/v1/chat/completions", Chat(R"(,"stream":true,"store":true)"),
                    [&](std::string_view data, absl::Time) {
                      if (data == "[DONE]") return true;
                      const json::value event = json::parse(std::string(data));
                      id = std::string(event.at("id").as_string());
                      deltas.push_back(event.at("choices").at(0).at("delta"));
                      return true;
                    });
    REQUIRE(streamed.ok());
    CHECK(deltas.size() == 5);  // role, three tokens, finish reason
    CheckNames(deltas, names);
    const json::value stored = Parsed(client.Get("/v1/chat/completions/" + id));
    CheckNames({stored.at("choices").at(0).at("message")}, names);

    for (const char* quiet : {R"(,"include_reasoning":false)", R"(,"separate_reasoning":false)"}) {
      const json::value none = Parsed(client.Post("/v1/chat/completions", Chat(quiet)));
      CheckNames({none.at("choices").at(0).at("message")}, {});
    }
  }
}

TEST_CASE("messages of clients may have either name, whatever the setting") {
  for (const ReasoningNames names : {ReasoningNames::kBoth, ReasoningNames::kReasoning}) {
    ApiFrontOptions options;
    options.reasoning_names = names;
    const auto served = Reasoner(options);
    served->model->chat_template = *ChatTemplate::FromSource(
        "{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content }}:{{ m.content }}{% endfor "
        "%}",
        "");
    for (const char* reasoning :
         {R"("reasoning_content":"hm")", R"("reasoning":"hm")", R"("thinking":"hm")",
          R"("reasoning_content":"hm","reasoning":"hm")",
          R"("reasoning_content":null,"reasoning":"hm")"}) {
      CAPTURE(reasoning);
      const json::value told = Parsed(served->Client().Post(
          "/apply-template",
          absl::StrCat(R"({"messages":[{"role":"assistant","content":"b",)", reasoning, "}]}")));
      CHECK(told.at("prompt") == "[assistant]hm:b");
    }
  }
}

}  // namespace
}  // namespace baton
