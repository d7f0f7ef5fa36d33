// Requests of gRPC as the one table of fields sees them, and bytes of strangers.
#include "server/grpc/rpc_request.h"

#include <catch2/catch.hpp>
#include <random>

#include "completion.pb.h"

namespace baton {
namespace {

v1::GenerateRequest FullRequest() {
  v1::GenerateRequest rpc;
  rpc.set_model("demo");
  auto* const message = rpc.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("Why?\n\"\\ \x01 \xf0\x9f\x99\x82");
  message->set_more_fields_json(R"({"name":"x"})");
  rpc.set_max_tokens(7);
  rpc.set_min_tokens(2);
  rpc.set_n(3);
  rpc.set_temperature(0.7);
  rpc.set_top_p(0.5);
  rpc.set_top_k(9);
  rpc.set_min_p(0.25);
  rpc.set_seed(std::numeric_limits<int64_t>::min());
  rpc.set_presence_penalty(-1);
  rpc.set_frequency_penalty(1.5);
  rpc.set_repetition_penalty(1.25);
  rpc.mutable_structured_outputs()->set_regex("a+");
  rpc.add_stop("b");
  rpc.add_stop_token_ids(4);
  rpc.set_include_stop_str_in_output(true);
  rpc.set_ignore_eos(true);
  rpc.set_return_token_ids(true);
  rpc.set_logprobs(5);
  rpc.set_prompt_logprobs(1);
  rpc.set_skip_special_tokens(false);
  rpc.set_baton_digest(true);
  rpc.set_cache_salt("salt");
  rpc.set_more_fields_json(R"({"logit_bias":{"5":-0.1}})");
  return rpc;
}

TEST_CASE("every field of a request arrives") {
  const v1::GenerateRequest rpc = FullRequest();
  // Whoever adds a field adds it here.
  REQUIRE(v1::GenerateRequest::descriptor()->field_count() == 27);
  ApiRequest request;
  const auto problem = ParseGenerate(rpc.SerializeAsString(), {}, &request);
  INFO((problem ? problem->message : ""));
  REQUIRE_FALSE(problem);
  CHECK(request.is_chat());
  CHECK(request.model == "demo");
  CHECK(request.messages.find(R"("name":"x")") != std::string::npos);
  CHECK(request.messages.find("\xf0\x9f\x99\x82") != std::string::npos);
  CHECK(request.max_tokens == 7);
  CHECK(request.min_tokens == 2);
  CHECK(request.n == 3);
  CHECK(request.temperature == 0.7);
  CHECK(request.top_p == 0.5);
  CHECK(request.top_k == 9);
  CHECK(request.min_p == 0.25);
  CHECK(request.seed == std::numeric_limits<int64_t>::min());
  CHECK(request.presence_penalty == -1);
  CHECK(request.frequency_penalty == 1.5);
  CHECK(request.repetition_penalty == 1.25);
  CHECK(request.grammar.kind == GrammarKind::kRegex);
  CHECK(request.stop == std::vector<std::string>{"b"});
  CHECK(request.stop_token_ids == std::vector<int32_t>{4});
  CHECK(request.include_stop);
  CHECK(request.ignore_eos);
  CHECK(request.return_token_ids);
  CHECK(request.top_logprobs == 5);
  CHECK(request.prompt_logprobs == 1);
  CHECK_FALSE(request.skip_special_tokens);
  CHECK(request.digests);
  CHECK(request.cache_salt == "salt");
  REQUIRE(request.logit_bias.size() == 1);
  CHECK(request.logit_bias[0].bias == -0.1f);
  CHECK(request.stream);
}

TEST_CASE("a field that is not set has the default of HTTP") {
  v1::GenerateRequest rpc;
  rpc.set_prompt("a");
  ApiRequest request, of_http;
  REQUIRE_FALSE(ParseGenerate(rpc.SerializeAsString(), {}, &request));
  REQUIRE_FALSE(ParseApiRequest(Endpoint::kCompletions, R"({"prompt":"a"})", &of_http));
  CHECK(request.prompts == of_http.prompts);
  CHECK(request.max_tokens == of_http.max_tokens);
  CHECK(request.temperature == of_http.temperature);
  CHECK(request.top_logprobs == of_http.top_logprobs);
  CHECK(request.skip_special_tokens == of_http.skip_special_tokens);
  CHECK(request.cache_salt.empty());
  CHECK_FALSE(request.return_token_ids);
}

TEST_CASE("whatever bytes come are read or refused") {
  std::mt19937_64 random(11);
  const std::string whole = FullRequest().SerializeAsString();
  int n_read = 0, n_refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole;
    for (uint64_t n = 1 + random() % 4; n > 0 && !bytes.empty(); --n) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, random() % 8);
          break;
        case 2:
          bytes.insert(at, whole.substr(random() % whole.size(), random() % 16));
          break;
        default:
          bytes.resize(at + 1);
      }
    }
    ApiRequest request;
    std::string json;
    const auto problem = ParseGenerate(bytes, {}, &request);
    (problem ? n_refused : n_read)++;
    if (problem) {
      CHECK(problem->status == 400);
      CHECK_FALSE(problem->message.empty());
    }
    TokenizeJson(bytes, &json);
    DetokenizeJson(bytes, &json);
  }
  CHECK(n_read > 100);
  CHECK(n_refused > 100);
}

}  // namespace
}  // namespace baton
