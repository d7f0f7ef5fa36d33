// Routes that need no worker: tokens and text, templates, figures of the cluster, the description
// of the API.
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "tests/server/api/served_api.h"

namespace baton {
namespace {

namespace json = boost::json;

struct Answered {
  int status;
  std::string body;
};
Answered Ask(const Served& served, const std::string& path, const std::string& body) {
  const auto response = served.Client().Post(path, body);
  REQUIRE(response.ok());
  return {response->status, response->body};
}

std::string ErrorAt(const Answered& answered) {
  const json::value error = json::parse(answered.body).at("error");
  return absl::StrCat(
      answered.status, " ",
      std::string(error.at("param").is_null() ? "null" : error.at("param").as_string().c_str()));
}

TEST_CASE("text becomes the tokens that prompts become, and tokens become the text again") {
  Served served;
  const std::vector<int32_t> ids = *served.model->tokenizer->Encode("hello ducks", true);
  const std::string list = json::serialize(json::value_from(ids));
  const std::string count = std::to_string(ids.size());
  CHECK(Ask(served, "/tokenize", R"({"prompt":"hello ducks"})").body ==
        absl::StrCat(R"({"count":)", count, R"(,"max_model_len":4096,"tokens":)", list,
                     R"(,"token_strs":null})"));
  CHECK(Ask(served, "/detokenize", absl::StrCat(R"({"tokens":)", list, "}")).body ==
        R"({"prompt":"hello ducks","content":"hello ducks"})");
  // A long text, on the pool.
  std::string words;
  for (int i = 0; i < 2000; ++i) words += "ducks ";
  const json::value whole =
      json::parse(Ask(served, "/tokenize", absl::StrCat(R"({"prompt":")", words, "\"}")).body);
  CHECK(whole.at("count").as_int64() ==
        static_cast<int64_t>(served.model->tokenizer->Encode(words, true)->size()));

  const json::value strings =
      json::parse(Ask(served, "/tokenize", R"({"prompt":"ab","return_token_strs":true})").body);
  CHECK(strings.at("token_strs").as_array().size() == strings.at("tokens").as_array().size());
}

TEST_CASE("llama.cpp's form: content, pieces") {
  Served served;
  const std::vector<int32_t> ids = *served.model->tokenizer->Encode("a\u00e4", false);
  CHECK(Ask(served, "/tokenize", R"({"content":"a\u00e4"})").body ==
        absl::StrCat(R"({"tokens":)", json::serialize(json::value_from(ids)), "}"));
  const json::value pieces =
      json::parse(Ask(served, "/tokenize", R"({"content":"a\u00e4","with_pieces":true})").body);
  std::string bytes;
  for (const json::value& token : pieces.at("tokens").as_array()) {
    const json::value& piece = token.at("piece");
    if (piece.is_string()) {
      bytes += piece.as_string().c_str();
    } else {
      for (const json::value& byte : piece.as_array())
        bytes.push_back(static_cast<char>(byte.as_int64()));
    }
  }
  CHECK(bytes.find("\u00e4") != std::string::npos);
}

TEST_CASE("a conversation's template, as a text and as tokens") {
  Served served;
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  const json::value rendered =
      json::parse(Ask(served, "/apply-template", absl::StrCat("{", messages, "}")).body);
  const std::string prompt = rendered.at("prompt").as_string().c_str();
  CHECK(prompt.find("hi") != std::string::npos);
  const json::value tokens =
      json::parse(Ask(served, "/tokenize", absl::StrCat("{", messages, "}")).body);
  CHECK(tokens.at("tokens") ==
        json::value_from(*served.model->tokenizer->Encode(prompt, /*add_special_tokens=*/false)));
  const json::value shorter =
      json::parse(Ask(served, "/apply-template",
                      absl::StrCat("{", messages, R"(,"add_generation_prompt":false})"))
                      .body);
  CHECK(shorter.at("prompt").as_string().size() < prompt.size());
}

TEST_CASE("bad requests for text work are a 400 or 404 that names the field") {
  Served served;
  CHECK(ErrorAt(Ask(served, "/tokenize", "{}")) == "400 prompt");
  CHECK(ErrorAt(Ask(served, "/tokenize", R"({"prompt":"a","content":"a"})")) == "400 prompt");
  CHECK(ErrorAt(Ask(served, "/tokenize", R"({"prompt":["a"]})")) == "400 prompt");
  CHECK(ErrorAt(Ask(served, "/tokenize", R"({"prompt":"a","model":"x"})")) == "404 model");
  CHECK(ErrorAt(Ask(served, "/detokenize", R"({"tokens":[1,-1]})")) == "400 tokens[1]");
  CHECK(ErrorAt(Ask(served, "/detokenize", R"({"tokens":[2000000000]})")) == "400 tokens[0]");
  CHECK(ErrorAt(Ask(served, "/apply-template", R"({"messages":[]})")) == "400 messages");
  CHECK(ErrorAt(Ask(served, "/apply-template", R"({"messages":[{"role":"x"}]})")) ==
        "400 messages[0].role");
}

TEST_CASE("figures of the cluster") {
  Served served;
  const HttpClient client = served.Client();
  CHECK(client.Get("/load")->body == R"({"server_load":0})");
  CHECK(client.Get("/v1/cluster")->body ==
        R"({"object":"cluster","model":"demo","ready":true,"draining":false,"max_context":4096,)"
        R"("workers":{"prefill":1,"decode":1,"standing":0,"expected":0},)"
        R"("requests":{"running":0,"waiting":0,"ending":0},)"
        R"("kv_pages":{"total":0,"free":0,"promised":0},"broken_links":[]})");
  served.On([&] {
    served.generator->workers = {
        {.name = "prefill0", .links = {{.peer = "decode0"}, {.peer = "decode1", .broken = true}}},
        {.name = "decode0"}};
  });
  const json::value told = json::parse(client.Get("/v1/cluster")->body);
  CHECK(told.at("broken_links") == json::parse(R"([{"from":"prefill0","to":"decode1"}])"));
}

TEST_CASE("what other servers serve and this one does not is a 501") {
  Served served;
  for (const char* path : {"/v1/embeddings", "/v1/audio/speech", "/v1/audio/transcriptions",
                           "/v1/images/generations"}) {
    const Answered answered = Ask(served, path, "{}");
    INFO(path);
    CHECK(answered.status == 501);
    CHECK(answered.body == absl::StrCat(R"({"error":{"message":")", path,
                                        R"( is not supported by this server.",)"
                                        R"("type":"server_error","param":null,)"
                                        R"("code":"not_supported"}})"));
  }
}

TEST_CASE("a model of several names has them all, and answers with the first") {
  Served served({}, {}, "first,second, third,first");
  const HttpClient client = served.Client();
  const json::value list = json::parse(client.Get("/v1/models")->body);
  std::vector<std::string> names;
  for (const json::value& model : list.at("data").as_array()) {
    names.emplace_back(model.at("id").as_string().c_str());
    CHECK(model.at("root") == "first");
  }
  CHECK(names == std::vector<std::string>{"first", "second", "third"});
  CHECK(json::parse(client.Get("/v1/models/third")->body).at("id") == "third");
  CHECK(client.Get("/v1/models/fourth")->status == 404);
  for (const char* name : {"first", "third"}) {
    const auto answered =
        Ask(served, "/v1/completions",
            absl::StrCat(R"({"prompt":[5],"max_tokens":1,"model":")", name, "\"}"));
    CHECK(answered.status == 200);
    CHECK(json::parse(answered.body).at("model") == "first");
  }
  CHECK(Ask(served, "/v1/completions", R"({"prompt":[5],"model":"fourth"})").status == 404);
}

// Collects the targets of all references of a document.
void Collect(const json::value& value, std::set<std::string>* references) {
  if (const json::object* object = value.if_object()) {
    for (const auto& member : *object) {
      if (member.key() == "$ref") references->insert(member.value().as_string().c_str());
      Collect(member.value(), references);
    }
  } else if (const json::array* array = value.if_array()) {
    for (const json::value& element : *array) Collect(element, references);
  }
}

TEST_CASE("the description of the API is JSON, has every route, and its references resolve") {
  Served served;
  const auto answer = served.Client().Get("/openapi.json");
  REQUIRE(answer->status == 200);
  json::error_code bad;
  const json::value document = json::parse(answer->body, bad);
  REQUIRE_FALSE(bad);
  CHECK(document.at("openapi") == "3.1.0");
  CHECK(document.at("info").at("version") == "test");
  const json::object& paths = document.at("paths").as_object();
  size_t n_operations = 0;
  for (const auto& path : paths) n_operations += path.value().as_object().size();
  CHECK(n_operations == RouteTable().size());
  for (const Route& route : RouteTable()) {
    std::string path(route.path);
    if (path.ends_with('*')) path.replace(path.size() - 1, 1, "{model}");
    INFO(path);
    REQUIRE(paths.contains(path));
    const json::object& operation =
        paths.at(path).at(absl::AsciiStrToLower(std::string(route.method))).as_object();
    CHECK(operation.at("responses").as_object().contains("default"));
    CHECK(operation.at("responses").as_object().contains("200") == (route.answer != nullptr));
  }
  std::set<std::string> references;
  Collect(document, &references);
  CHECK(references.size() > 15);
  const json::object& schemas = document.at("components").at("schemas").as_object();
  for (const std::string& reference : references) {
    INFO(reference);
    const std::string prefix = "#/components/schemas/";
    REQUIRE(reference.starts_with(prefix));
    CHECK(schemas.contains(reference.substr(prefix.size())));
  }
  const json::value& n = schemas.at("CompletionRequest").at("properties").at("n").at("anyOf").at(0);
  CHECK(n == json::parse(R"({"type":"integer","minimum":1,"maximum":128})"));
}

}  // namespace
}  // namespace baton
