// Messages of the gRPC API: whatever bytes a client sends are refused by a field's name, or become
// a request that keeps the limits of HTTP's, whose answer is again messages.
#include "absl/strings/str_cat.h"
#include "completion.pb.h"
#include "server/api/json_document.h"
#include "server/api/prepared_request.h"
#include "server/api/text_tokens.h"
#include "server/grpc/frames.h"
#include "server/grpc/rpc_methods.h"
#include "server/grpc/rpc_request.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/request_check.h"
#include "tests/fuzz/thread_time.h"

namespace baton {
namespace {

enum Method { kGenerate, kTokenize, kDetokenize, kMethods };
constexpr absl::Duration kMaxTime = absl::Seconds(1);
constexpr size_t kMaxMessage = 1 << 20;

void CheckRefusal(const ApiError& error) {
  BATON_CHECK(error.status == 400 || error.status == 404);
  BATON_CHECK(!error.message.empty() && error.message.size() < 4000);
}

// Every frame is a message, and all of them together are the answer.
void CheckFrames(std::string frames) {
  while (!frames.empty()) {
    v1::GenerateResponse response;
    BATON_CHECK(response.ParseFromString(TakeMessage(kMaxMessage, &frames)));
  }
}

// A short answer to the request.
void CheckAnswer(const PreparedRequest& prepared) {
  const auto answer = kRpcGenerateApi.answer(Demo(), prepared.request, prepared.prompts,
                                             {.id = "r", .unique_id = "u"});
  std::string frames;
  for (size_t choice = 0; choice < answer->n_choices(); ++choice) {
    EmitToken token;
    token.token = 40;
    token.logprob = -1;
    if (prepared.request.top_logprobs) token.logprobs = {{40, -1.0f}};
    frames += answer->OnToken(choice, token);
    frames += answer->OnChoiceEnd(choice, {});
  }
  frames += answer->OnEnd();
  BATON_CHECK(!frames.empty());
  CheckFrames(std::move(frames));
}

void TryGenerate(const std::string& body) {
  PreparedRequest prepared;
  prepared.Read(kRpcGenerateApi, Demo(), {}, 0, body);
  if (prepared.error) return CheckRefusal(*prepared.error);
  BATON_CHECK(prepared.request.stream && prepared.prompts.size() == 1);
  for (const PreparedPrompt& prompt : prepared.prompts) CheckGenerate(prompt.generate);
  CheckAnswer(prepared);
}

// Tokenize, Detokenize: the JSON that the message becomes is JSON, whatever its texts are.
template <typename ToJson, typename Answer>
void TryText(const std::string& body, const ToJson& to_json, const Answer& answer) {
  std::string json;
  if (const auto error = to_json(body, &json)) return CheckRefusal(*error);
  BATON_CHECK(ParseJson(json, "json").ok());
  const auto found = answer(Demo(), json);
  if (const auto* error = std::get_if<ApiError>(&found)) CheckRefusal(*error);
}

// ---- seeds ----

v1::GenerateRequest EveryField() {
  v1::GenerateRequest rpc;
  rpc.set_model("demo");
  rpc.set_max_tokens(3);
  rpc.set_min_tokens(1);
  rpc.set_n(2);
  rpc.set_temperature(0.7);
  rpc.set_top_p(0.5);
  rpc.set_top_k(9);
  rpc.set_min_p(0.25);
  rpc.set_seed(-5);
  rpc.set_presence_penalty(-1);
  rpc.set_frequency_penalty(1.5);
  rpc.set_repetition_penalty(1.25);
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
  rpc.set_more_fields_json(R"({"logit_bias":{"40":-1}})");
  return rpc;
}

void AddChat(v1::Chat* chat) {
  for (const char* role : {"system", "user", "assistant"}) {
    v1::ChatMessage* const message = chat->add_messages();
    message->set_role(role);
    message->set_content("a");
  }
  chat->mutable_messages(2)->set_more_fields_json(
      R"({"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]})");
}

}  // namespace

void TryInput(std::string_view bytes) {
  const absl::Duration begin = ThreadTime();
  FuzzInput input(bytes);
  const size_t method = input.Below(kMethods);
  const std::string body(input.Rest());
  if (method == kGenerate) TryGenerate(body);
  if (method == kTokenize) TryText(body, TokenizeJson, TokensOf);
  if (method == kDetokenize) TryText(body, DetokenizeJson, TextOfTokens);
  BATON_CHECK(ThreadTime() - begin < kMaxTime);
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  const auto add = [&](Method method, const google::protobuf::MessageLite& message) {
    seeds.inputs.push_back(static_cast<char>(method) + message.SerializeAsString());
  };
  v1::GenerateRequest rpc;
  rpc.set_prompt("a");
  add(kGenerate, rpc);
  rpc = EveryField();
  rpc.set_prompt("abc");
  add(kGenerate, rpc);
  AddChat(rpc.mutable_chat());
  add(kGenerate, rpc);
  for (const int32_t id : {1, 40, 300}) rpc.mutable_prompt_token_ids()->add_ids(id);
  rpc.mutable_structured_outputs()->set_regex("[a-c]+");
  add(kGenerate, rpc);
  rpc = {};
  rpc.set_prompt("a");
  v1::StructuredOutputs& form = *rpc.mutable_structured_outputs();
  form.set_json(R"({"type":"object","properties":{"a":{"type":"integer"}}})");
  add(kGenerate, rpc);
  form.mutable_choice()->add_texts("yes");
  add(kGenerate, rpc);
  form.set_grammar("start: \"a\"+");
  add(kGenerate, rpc);
  form.set_json_object(true);
  add(kGenerate, rpc);
  v1::TokenizeRequest tokenize;
  tokenize.set_prompt("ab");
  add(kTokenize, tokenize);
  AddChat(tokenize.mutable_chat());
  tokenize.set_more_fields_json(R"({"add_generation_prompt":true})");
  add(kTokenize, tokenize);
  v1::DetokenizeRequest detokenize;
  for (const int32_t id : {40, 41}) detokenize.add_tokens(id);
  add(kDetokenize, detokenize);
  for (const char* word : {R"({"tools":[{"type":"function","function":{"name":"f"}}]})",
                           R"({"logit_bias":{"40":1}})", R"({"response_format":)", "{}", "null",
                           "demo", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\xed\xa0\x80"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
