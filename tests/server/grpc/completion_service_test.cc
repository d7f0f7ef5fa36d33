// The gRPC server over a fake cluster: calls and their ends, cancellation, bounds, shutdown.
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <filesystem>

#include "absl/time/clock.h"
#include "server/grpc/frames.h"
#include "server/grpc/peer_address.h"
#include "tests/server/grpc/served_grpc.h"

namespace baton {
namespace {

namespace json = boost::json;

// The one choice of an answer over HTTP.
json::object HttpChoice(const Served& served, const std::string& body) {
  const auto answer = served.Client().Post("/v1/completions", body);
  REQUIRE(answer.ok());
  return json::parse(answer->body).at("choices").at(0).as_object();
}

std::string HttpError(const Served& served, const std::string& path, const std::string& body) {
  const auto answer = served.Client().Post(path, body);
  REQUIRE(answer.ok());
  return std::string(json::parse(answer->body).at("error").at("message").as_string().c_str());
}

int NDescriptors() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST_CASE("a call streams what HTTP answers") {
  ServedGrpc served;
  v1::GenerateRequest request = OfIds({5}, 7);
  request.set_return_token_ids(true);
  request.set_logprobs(0);
  const Generated generated = Generate(served.stub.get(), request);
  REQUIRE(generated.status.ok());
  const json::object choice =
      HttpChoice(served, R"({"prompt":[5],"max_tokens":7,"return_token_ids":true,"logprobs":0})");
  CHECK(generated.text() == choice.at("text").as_string().c_str());
  CHECK_FALSE(generated.text().empty());
  std::vector<int32_t> ids;
  size_t n_logprobs = 0;
  for (const auto& response : generated.responses) {
    for (const auto& delta : response.choices()) {
      ids.insert(ids.end(), delta.token_ids().begin(), delta.token_ids().end());
      for (const auto& token : delta.logprobs()) {
        CHECK(token.token_id() == 5);
        CHECK(token.logprob() == -1);
        CHECK(token.token() == served.model->tokenizer->TokenBytes(5));
      }
      n_logprobs += static_cast<size_t>(delta.logprobs_size());
    }
  }
  CHECK(ids == std::vector<int32_t>(7, 5));
  CHECK(n_logprobs == 7);
  CHECK(generated.last_delta().finish_reason() == "length");
  CHECK(generated.usage().prompt_tokens() == 1);
  CHECK(generated.usage().completion_tokens() == 7);
  CHECK(generated.responses[0].model() == "demo");
  CHECK(generated.responses[0].id().size() == 16);
  CHECK(generated.responses.back().id().empty());
  CHECK(served.Metrics().find(R"(endpoint="grpc_generate")") != std::string::npos);
}

TEST_CASE("text, messages, choices and stop texts are those of HTTP") {
  ServedGrpc served;
  v1::GenerateRequest request;
  request.set_model("other");
  request.set_prompt("Twelve drummers");
  request.set_n(3);
  request.set_max_tokens(4);
  Generated generated = Generate(served.stub.get(), request);
  REQUIRE(generated.status.ok());
  const std::string text = generated.text();
  CHECK(text == HttpChoice(served, R"({"prompt":"Twelve drummers","max_tokens":4})")
                    .at("text")
                    .as_string()
                    .c_str());
  CHECK(generated.text(2) == text);
  CHECK(generated.usage().completion_tokens() == 12);
  request.clear_n();
  request.add_stop(text.substr(0, 2));
  generated = Generate(served.stub.get(), request);
  CHECK(generated.last_delta().finish_reason() == "stop");
  CHECK(generated.last_delta().stop_text() == text.substr(0, 2));
  CHECK(generated.text().empty());
  request.Clear();
  auto* const message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("Hello");
  request.set_max_tokens(3);
  request.set_more_fields_json(
      R"({"top_p": 0.5, "logit_bias": {"7": -1.25}, "seed": 9007199254740993})");
  REQUIRE(Generate(served.stub.get(), request).status.ok());
  served.On([&] {
    const GenerateRequest& last = served.generator->submitted.back();
    CHECK(last.sampling.top_p == 0.5f);
    REQUIRE(last.sampling.logit_bias.size() == 1);
    CHECK(last.sampling.logit_bias[0].bias == -1.25f);
    CHECK(last.sampling.seed == uint64_t{9007199254740993});
    CHECK(last.prompt.size() > 3);  // the template's tokens are there
    return 0;
  });
}

TEST_CASE("log-probabilities of the prompt come before the first token, in several messages") {
  ServedGrpc served;
  v1::GenerateRequest request = OfIds(std::vector<int32_t>(600, 5), 2);
  request.set_prompt_logprobs(2);
  const Generated generated = Generate(served.stub.get(), request);
  REQUIRE(generated.status.ok());
  int n = 0;
  for (const auto& response : generated.responses) {
    n += response.prompt_tokens_size();
    for (const auto& token : response.prompt_tokens()) {
      CHECK(token.token_id() == 5);
      CHECK(token.logprob() == -2);
      CHECK(token.rank() == 3);
      CHECK(token.top_size() == 2);
    }
  }
  CHECK(n == 599);
}

TEST_CASE("errors are HTTP's, with the field beside the status") {
  ServedGrpc served;
  v1::GenerateRequest request = OfIds({5}, 1);
  request.set_temperature(-1);
  Generated refused = Generate(served.stub.get(), request);
  CHECK(refused.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(refused.status.error_message() ==
        HttpError(served, "/v1/completions", R"({"prompt":[5],"temperature":-1})"));
  CHECK(FieldOf(refused.status) == "temperature");
  CHECK(FindDetail<rpc::ErrorInfo>(refused.status, "ErrorInfo")->reason() == "INVALID_VALUE");

  request.set_temperature(std::numeric_limits<double>::quiet_NaN());
  refused = Generate(served.stub.get(), request);
  CHECK(refused.status.error_message() == "temperature must be a finite number; got nan.");
  refused = Generate(served.stub.get(), {});
  CHECK(refused.status.error_message() == HttpError(served, "/v1/completions", "{}"));
  refused = Generate(served.stub.get(), OfIds({5, -7}, 1));
  CHECK(refused.status.error_message() ==
        HttpError(served, "/v1/completions", R"({"prompt":[5,-7]})"));
  refused = Generate(served.stub.get(), OfIds(std::vector<int32_t>(5000, 5), 1));
  CHECK(refused.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  const auto info = FindDetail<rpc::ErrorInfo>(refused.status, "ErrorInfo");
  CHECK(info->reason() == "CONTEXT_LENGTH_EXCEEDED");
  CHECK(info->metadata().at("n_prompt_tokens") == "5000");

  request = OfIds({5}, 1);
  request.set_model("nobody");
  refused = Generate(served.stub.get(), request);
  CHECK(refused.status.error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(refused.status.error_message() ==
        HttpError(served, "/v1/completions", R"({"prompt":[5],"model":"nobody"})"));
}

TEST_CASE("further fields are checked like all others") {
  ServedGrpc served;
  const auto message_of = [&](const std::string& more) {
    v1::GenerateRequest request = OfIds({5}, 1);
    request.set_more_fields_json(more);
    const Generated refused = Generate(served.stub.get(), request);
    CHECK(refused.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    return refused.status.error_message();
  };
  CHECK(message_of(R"({"bad_words":7})") ==
        HttpError(served, "/v1/completions", R"({"prompt":[5],"bad_words":7})"));
  CHECK(message_of("7") == "more_fields_json must be a JSON object.");
  CHECK(message_of("{").starts_with("more_fields_json"));
  CHECK(message_of(R"({"stream":false})") == "stream belongs to the HTTP API; leave it out.");
  CHECK(message_of(R"({"max_tokens":2})").find("\"max_tokens\" is given twice") !=
        std::string::npos);
  v1::GenerateRequest request;
  request.mutable_chat()->add_messages()->set_more_fields_json("[]");
  CHECK(FieldOf(Generate(served.stub.get(), request).status) == "messages[0].more_fields_json");
}

TEST_CASE("bytes that are no request, or no text, are refused") {
  ServedGrpc served;
  grpc::GenericStub stub(served.channel);
  // A string field, 2, of one byte that is no UTF-8; a field that is cut; a huge length.
  for (const std::string& bytes : {std::string("\x12\x01\xff"),
                                   std::string("\x12\x05"
                                               "ab"),
                                   std::string("\x12\xff\xff\xff\xff\x0f")}) {
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer message(&slice, 1);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto call =
        stub.PrepareUnaryCall(&context, "/baton.v1.Completion/Generate", message, &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    REQUIRE(queue.Next(&tag, &ok));
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(status.error_message() ==
          "The request is no baton.v1.GenerateRequest: it is cut, or a string in it is no UTF-8.");
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
  }
  CHECK(Generate(served.stub.get(), OfIds({5}, 1)).status.ok());
}

TEST_CASE("refusals of the cluster say when to come again, or that nobody is there") {
  ServedGrpc served;
  served.On([&] {
    served.generator->refusal = absl::ResourceExhaustedError("The queue is full.");
    return 0;
  });
  Generated refused = Generate(served.stub.get(), OfIds({5}, 1));
  CHECK(refused.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(FindDetail<rpc::RetryInfo>(refused.status, "RetryInfo")->retry_delay().seconds() == 1);
  served.On([&] {
    served.generator->refusal = absl::UnavailableError("No worker.");
    return 0;
  });
  refused = Generate(served.stub.get(), OfIds({5}, 1));
  CHECK(refused.status.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK_FALSE(FindDetail<rpc::RetryInfo>(refused.status, "RetryInfo"));
}

TEST_CASE("a stream that fails ends with the error as its status") {
  ServedGrpc served;
  served.generator->hold = true;
  grpc::ClientContext context;
  const auto reader = served.stub->Generate(&context, OfIds({5}, 9));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  served.On([&] {
    served.generator->StepAll();
    served.generator->FailAll(absl::AbortedError("Both workers are lost."));
    return 0;
  });
  v1::GenerateResponse response;
  REQUIRE(reader->Read(&response));
  CHECK(response.choices_size() == 1);
  CHECK_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  CHECK(status.error_code() == grpc::StatusCode::INTERNAL);
  CHECK(status.error_message() == "Both workers are lost.");
  CHECK(FindDetail<rpc::ErrorInfo>(status, "ErrorInfo")->reason() == "WORKERS_LOST");
}

TEST_CASE("a cancelled call and a broken connection end the work") {
  ServedGrpc served;
  served.generator->hold = true;
  grpc::ClientContext context;
  const auto reader = served.stub->Generate(&context, OfIds({5}, 9));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  context.TryCancel();
  REQUIRE(served.WaitFor([&] { return served.generator->n_cancelled == 1; }));
  CHECK(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
  CHECK(served.WaitFor([&] { return served.grpc->n_calls() == 0; }));
  CHECK(served.WaitFor([&] { return served.generator->View().running == 0; }));
}

TEST_CASE("a deadline ends the work within 100 ms") {
  ServedGrpc served;
  served.generator->hold = true;
  grpc::ClientContext context;
  const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(300);
  context.set_deadline(deadline);
  const auto reader = served.stub->Generate(&context, OfIds({5}, 9));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  CHECK(served.generator->n_cancelled == 0);
  REQUIRE(served.WaitFor([&] { return served.generator->n_cancelled == 1; }));
  CHECK(std::chrono::system_clock::now() < deadline + std::chrono::milliseconds(100));
  CHECK(reader->Finish().error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_CASE("a client that does not read is cancelled, by bytes and by time") {
  GrpcOptions options;
  SECTION("bytes") { options.max_unsent = 4096; }
  SECTION("time") {
    options.max_unsent = 1 << 30;
    options.write_timeout = absl::Milliseconds(200);
  }
  ServedGrpc served(options);
  served.generator->endless = true;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // the window stays small
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4096);
  const auto stub = v1::Completion::NewStub(
      grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", served.grpc->port()),
                                grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, OfIds({5}, 4000));
  REQUIRE(served.WaitFor([&] { return served.generator->n_cancelled == 1; }, absl::Seconds(60)));
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  CHECK(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
  CHECK(served.WaitFor([&] { return served.grpc->n_calls() == 0; }));
}

TEST_CASE("calls beyond the bound and requests beyond the size are refused") {
  GrpcOptions options;
  options.max_calls = 2;
  options.max_body = 4096;
  ServedGrpc served(options);
  served.generator->hold = true;
  grpc::ClientContext first, second;
  const auto a = served.stub->Generate(&first, OfIds({5}, 9));
  // Streams of one connection beyond the bound wait at the client: another connection is refused.
  const auto other = v1::Completion::NewStub(grpc::CreateCustomChannel(
      absl::StrCat("127.0.0.1:", served.grpc->port()), grpc::InsecureChannelCredentials(), [] {
        grpc::ChannelArguments arguments;
        arguments.SetInt("grpc.use_local_subchannel_pool", 1);
        return arguments;
      }()));
  const auto b = other->Generate(&second, OfIds({5}, 9));
  REQUIRE(served.WaitFor([&] { return served.grpc->n_calls() == 2; }));
  Generated refused = Generate(other.get(), OfIds({5}, 1));
  CHECK(refused.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(FindDetail<rpc::RetryInfo>(refused.status, "RetryInfo"));
  first.TryCancel();
  second.TryCancel();
  a->Finish();
  b->Finish();
  REQUIRE(served.WaitFor([&] { return served.grpc->n_calls() == 0; }));
  refused = Generate(served.stub.get(), OfIds(std::vector<int32_t>(5000, 5), 1));
  CHECK(refused.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_CASE("shutting down lets calls end and refuses new ones") {
  ServedGrpc served;
  served.generator->hold = true;
  grpc::ClientContext context;
  const auto reader = served.stub->Generate(&context, OfIds({5}, 2));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  std::atomic<bool> drained = false;
  served.On([&] {
    served.front->Drain([&] { drained = true; });
    return 0;
  });
  CHECK(Generate(served.stub.get(), OfIds({5}, 1)).status.error_code() ==
        grpc::StatusCode::UNAVAILABLE);
  CHECK_FALSE(drained);
  served.On([&] {
    served.generator->StepAll();
    served.generator->StepAll();
    return 0;
  });
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  CHECK(reader->Finish().ok());
  CHECK(response.usage().completion_tokens() == 2);
  CHECK(served.WaitFor([&] { return drained.load(); }));
}

TEST_CASE("text, models and loads") {
  ServedGrpc served;
  served.On([&] {
    served.generator->workers = {{.name = "decode0",
                                  .role = Role::kDecode,
                                  .requests = 3,
                                  .decode_rows = 2,
                                  .pages_total = 100,
                                  .pages_free = 60,
                                  .pages_promised = 7}};
    return 0;
  });
  v1::TokenizeRequest tokenize;
  tokenize.set_prompt("Twelve drummers");
  v1::TokenizeResponse tokens;
  grpc::ClientContext first;
  REQUIRE(served.stub->Tokenize(&first, tokenize, &tokens).ok());
  const auto expected = served.Client().Post("/tokenize", R"({"prompt":"Twelve drummers"})");
  const json::value body = json::parse(expected->body);
  REQUIRE(static_cast<size_t>(tokens.tokens_size()) == body.at("tokens").as_array().size());
  CHECK(tokens.tokens(0) == body.at("tokens").at(0).as_int64());
  CHECK(tokens.max_model_len() == body.at("max_model_len").as_int64());

  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_tokens() = tokens.tokens();
  v1::DetokenizeResponse text;
  grpc::ClientContext second;
  REQUIRE(served.stub->Detokenize(&second, detokenize, &text).ok());
  CHECK(text.text().ends_with("Twelve drummers"));
  detokenize.add_tokens(-1);
  grpc::ClientContext third;
  const grpc::Status refused = served.stub->Detokenize(&third, detokenize, &text);
  CHECK(refused.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(FieldOf(refused).starts_with("tokens["));

  v1::ListModelsResponse models;
  grpc::ClientContext fourth;
  REQUIRE(served.stub->ListModels(&fourth, {}, &models).ok());
  REQUIRE(models.models_size() == 2);
  CHECK(models.models(1).id() == "other");
  CHECK(models.models(1).root() == "demo");
  CHECK(models.models(0).max_model_len() == tokens.max_model_len());

  v1::GetLoadsResponse loads;
  grpc::ClientContext fifth;
  REQUIRE(served.stub->GetLoads(&fifth, {}, &loads).ok());
  CHECK(loads.ready());
  REQUIRE(loads.workers_size() == 1);
  CHECK(loads.workers(0).name() == "decode0");
  CHECK(loads.workers(0).role() == "decode");
  CHECK(loads.workers(0).requests() == 3);
  CHECK(loads.workers(0).kv_pages_free() == 60);
  CHECK(loads.workers(0).kv_pages_promised() == 7);
}

TEST_CASE("servers and calls leave nothing behind") {
  { const ServedGrpc warm; }
  const int before = NDescriptors();
  for (int i = 0; i < 3; ++i) {
    ServedGrpc served;
    REQUIRE(Generate(served.stub.get(), OfIds({5}, 3)).status.ok());
    served.generator->hold = true;
    grpc::ClientContext context;  // a call that is under way when the server goes
    const auto reader = served.stub->Generate(&context, OfIds({5}, 3));
    REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 2; }));
    context.TryCancel();
    reader->Finish();
  }
  const absl::Time end = absl::Now() + absl::Seconds(10);  // gRPC closes sockets on its own threads
  while (NDescriptors() > before && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  CHECK(NDescriptors() <= before);
}

TEST_CASE("plain gRPC stays on this machine") {
  GrpcOptions options;
  for (const char* host : {"127.0.0.1", "127.3.4.5", "localhost", "::1"}) {
    options.host = host;
    CHECK(CheckGrpc(options).ok());
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org"}) {
    options.host = host;
    const std::string message(CheckGrpc(options).message());
    CHECK(message.find("server.tls_cert") != std::string::npos);
    CHECK(message.find(host) != std::string::npos);
  }
  options.tls = {.cert = "a", .key = "b", .client_ca = ""};
  CHECK(CheckGrpc(options).ok());
  options.tls.key.clear();
  CHECK(CheckGrpc(options).message().find("server.tls_key") != std::string::npos);
}

TEST_CASE("a port that is taken and files of TLS that are not there are errors that name them") {
  ServedGrpc served;
  GrpcOptions options;
  options.port = served.grpc->port();
  const auto taken = CompletionService::Start(&served.loop, options, served.front.get());
  CHECK(absl::IsUnavailable(taken.status()));
  CHECK(taken.status().message().find("server.grpc_port") != std::string::npos);
  options.port = 0;
  options.tls = {.cert = "/nowhere/cert.pem", .key = "/nowhere/key.pem", .client_ca = ""};
  const auto unread = CompletionService::Start(&served.loop, options, served.front.get());
  CHECK(unread.status().message() ==
        "server.tls_cert: cannot read /nowhere/cert.pem, or it is empty");
}

TEST_CASE("addresses of peers are those of HTTP") {
  CHECK(AddressOfPeer("ipv4:127.0.0.1:5000") == 0x7f000001);
  CHECK(AddressOfPeer("ipv6:%5B::ffff:10.0.0.1%5D:5000") == 0x0a000001);
  CHECK(AddressOfPeer("ipv6:[2001:db8::1]:80") == AddressOfPeer("ipv6:%5B2001:db8::2%5D:81"));
  CHECK(AddressOfPeer("ipv6:[2001:db8::1]:80") != AddressOfPeer("ipv6:[2001:db9::1]:80"));
  for (const char* text : {"", "unix:", "ipv4:1.2.3:5", "ipv6:[x]:5", "ipv4"})
    CHECK(AddressOfPeer(text) == 0);
}

TEST_CASE("frames are merged up to a size, and one is never cut") {
  std::string frames;
  for (const char* message : {"abc", "", "de", "fghij"}) AppendFrame(message, &frames);
  CHECK(TakeMessage(5, &frames) == "abcde");
  CHECK(TakeMessage(2, &frames) == "fghij");
  CHECK(frames.empty());
  CHECK(TakeMessage(2, &frames).empty());
}

}  // namespace
}  // namespace baton
