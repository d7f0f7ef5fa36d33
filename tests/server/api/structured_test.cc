// Structured output at the API: every spelling of a grammar, what is refused by name, and that a
// wrong grammar is a 400 before anything is submitted.
#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "server/api/api_request.h"
#include "tests/server/api/served_api.h"

namespace baton {
namespace {

namespace json = boost::json;

std::string Body(const std::string& fields) {
  return absl::StrCat(R"({"prompt":"a",)", fields, "}");
}

struct Read {
  GrammarSpec grammar;
  std::string path;
  bool operator==(const Read&) const = default;
};

Read GrammarOf(const std::string& fields) {
  ApiRequest request;
  const auto problem = ParseApiRequest(Endpoint::kCompletions, Body(fields), &request);
  INFO(fields << " " << (problem ? problem->message : ""));
  REQUIRE_FALSE(problem);
  return {request.grammar, request.grammar_path};
}

ApiError ProblemOf(const std::string& fields) {
  ApiRequest request;
  const auto problem = ParseApiRequest(Endpoint::kCompletions, Body(fields), &request);
  INFO(fields);
  REQUIRE(problem);
  return *problem;
}

TEST_CASE("grammars by all their names") {
  using K = GrammarKind;
  const std::string schema = R"({"type":"integer"})";
  const std::string quoted = R"("{\"type\":\"integer\"}")";
  CHECK(GrammarOf(R"("response_format":{"type":"text"})") == Read{});
  CHECK(GrammarOf(R"("response_format":{"type":"json_object"})") ==
        Read{{K::kJsonObject, ""}, "response_format"});
  CHECK(GrammarOf(absl::StrCat(
            R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)",
            schema, "}}")) == Read{{K::kJsonSchema, schema}, "response_format.json_schema.schema"});
  for (const std::string& value : {schema, quoted}) {
    CHECK(GrammarOf(absl::StrCat(R"("structured_outputs":{"json":)", value, "}")) ==
          Read{{K::kJsonSchema, schema}, "structured_outputs.json"});
    CHECK(GrammarOf(absl::StrCat(R"("guided_json":)", value)) ==
          Read{{K::kJsonSchema, schema}, "guided_json"});
    CHECK(GrammarOf(absl::StrCat(R"("json_schema":)", value)) ==
          Read{{K::kJsonSchema, schema}, "json_schema"});
  }
  CHECK(GrammarOf(R"("structured_outputs":{"regex":"a+","json":null})") ==
        Read{{K::kRegex, "a+"}, "structured_outputs.regex"});
  CHECK(GrammarOf(R"("guided_regex":"a+")") == Read{{K::kRegex, "a+"}, "guided_regex"});
  CHECK(GrammarOf(R"("regex":"a+")") == Read{{K::kRegex, "a+"}, "regex"});
  CHECK(GrammarOf(R"("structured_outputs":{"choice":["a","\n"]})") ==
        Read{{K::kChoice, R"(["a","\n"])"}, "structured_outputs.choice"});
  CHECK(GrammarOf(R"("guided_choice":["b"])") == Read{{K::kChoice, R"(["b"])"}, "guided_choice"});
  CHECK(GrammarOf(R"("structured_outputs":{"grammar":"start: \"a\""})") ==
        Read{{K::kLark, "start: \"a\""}, "structured_outputs.grammar"});
  CHECK(GrammarOf(R"("guided_grammar":"start: \"a\"")").grammar.kind == K::kLark);
  CHECK(GrammarOf(R"("grammar":"start: \"a\"")").grammar.kind == K::kLark);
  CHECK(GrammarOf(R"("structured_outputs":{"json_object":true})").grammar.kind == K::kJsonObject);
  CHECK(GrammarOf(R"("guided_json_object":true)").grammar.kind == K::kJsonObject);
  // Nothing is asked for.
  for (const char* none : {R"("regex":"")", R"("grammar":"")", R"("json_schema":{})",
                           R"("json_schema":"")", R"("guided_json_object":false)", R"("ebnf":"")"})
    CHECK(GrammarOf(none) == Read{});
}

TEST_CASE("what is no grammar is refused by its path") {
  const auto param = [](const std::string& fields) { return ProblemOf(fields).param; };
  CHECK(param(R"("guided_json":7)") == "guided_json");
  CHECK(param(R"("guided_json":"{a")") == "guided_json");
  CHECK(param(R"("response_format":{"type":"xml"})") == "response_format.type");
  CHECK(param(R"("response_format":{})") == "response_format.type");
  CHECK(param(R"("response_format":{"type":"json_schema"})") == "response_format.json_schema");
  CHECK(param(R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})") ==
        "response_format.json_schema.schema");
  CHECK(param(R"("structured_outputs":{})") == "structured_outputs");
  CHECK(param(R"("structured_outputs":{"choice":["a",7]})") == "structured_outputs.choice[1]");
  CHECK(param(R"("structured_outputs":{"grammar":""})") == "structured_outputs.grammar");
  const ApiError tag = ProblemOf(R"("structured_outputs":{"structural_tag":"a"})");
  CHECK(tag.param == "structured_outputs.structural_tag");
  CHECK(tag.code == "unsupported_parameter");
  CHECK(ProblemOf(R"("ebnf":"root ::= \"a\"")").code == "unsupported_parameter");
  CHECK_THAT(ProblemOf(R"("guided_regex":"a","regex":"b")").message,
             Catch::Contains("guided_regex") && Catch::Contains("regex and"));
  CHECK_THAT(
      ProblemOf(absl::StrCat(R"("regex":")", std::string(kMaxGrammarBytes + 1, 'a'), "\"")).message,
      Catch::Contains("at most 65536 bytes; got 65537"));
  CHECK(GrammarOf(absl::StrCat(R"("regex":")", std::string(kMaxGrammarBytes, 'a'), "\""))
            .grammar.text.size() == kMaxGrammarBytes);
}

TEST_CASE("a grammar is compiled before anything is submitted") {
  Served served;
  const HttpClient client = served.Client();
  const auto bad = client.Post("/v1/completions", Body(R"("regex":"[.*")"));
  REQUIRE(bad.ok());
  CHECK(bad->status == 400);
  const json::value error = json::parse(bad->body).at("error");
  CHECK(error.at("param").as_string() == "regex");
  CHECK(error.at("code").as_string() == "invalid_value");
  CHECK(served.generator->n_submitted == 0);
  for (int i = 0; i < 2; ++i) {  // compiled, then remembered
    const auto good = client.Post("/v1/completions", Body(R"("regex":"[ab]+","n":2)"));
    REQUIRE(good.ok());
    CHECK(good->status == 200);
  }
  served.On([&] {
    REQUIRE(served.generator->submitted.size() == 4);
    for (const GenerateRequest& request : served.generator->submitted)
      CHECK(request.sampling.grammar == GrammarSpec{GrammarKind::kRegex, "[ab]+"});
  });
}

TEST_CASE("clients that go away while their grammar is compiled leave nothing") {
  Served served;
  for (int i = 0; i < 20; ++i) {
    ClientLimits limits;
    limits.total = absl::Milliseconds(1 + i);
    const HttpClient hasty({"127.0.0.1", served.port}, limits);
    (void)hasty.Post("/v1/completions", Body(absl::StrCat(R"("regex":"a{1,)", 50 + i, "}\"")));
  }
  const auto after = served.Client().Post("/v1/completions", Body(R"("regex":"b+")"));
  REQUIRE(after.ok());
  CHECK(after->status == 200);
  CHECK(served.WaitFor([&] { return served.generator->View().running == 0; }));
}

}  // namespace
}  // namespace baton
