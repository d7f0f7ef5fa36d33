// Bounds of the gRPC server: bodies that wait, calls of a connection, and services that are not the
// control server's.
#include <grpcpp/generic/generic_stub.h>

#include <catch2/catch.hpp>
#include <future>

#include "proto/control_server.h"
#include "tests/server/grpc/served_grpc.h"

namespace baton {
namespace {

TEST_CASE("large requests that the front thread has not taken are bounded") {
  GrpcOptions options;
  options.max_body = 1 << 20;
  options.max_waiting_bytes = 100000;
  ServedGrpc served(options);
  std::promise<void> go_on;
  served.loop.Post([&] { go_on.get_future().wait(); });
  // Each has some 60 KB: the first one waits alone, and a second one does not fit beside it.
  const v1::GenerateRequest request = OfIds(std::vector<int32_t>(60000, 5), 1);
  std::vector<std::future<grpc::StatusCode>> codes;
  for (int i = 0; i < 4; ++i) {
    codes.push_back(std::async(std::launch::async, [&] {
      return Generate(served.stub.get(), request).status.error_code();
    }));
  }
  const auto n_ended = [&] {
    return std::count_if(codes.begin(), codes.end(), [](auto& code) {
      return code.wait_for(std::chrono::milliseconds(5)) == std::future_status::ready;
    });
  };
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (n_ended() < 3 && absl::Now() < end) {
  }
  CHECK(n_ended() == 3);  // refused while the front thread stands still
  go_on.set_value();
  int n_refused = 0, n_too_long = 0;
  for (auto& code : codes) {
    const grpc::StatusCode told = code.get();
    n_refused += told == grpc::StatusCode::RESOURCE_EXHAUSTED;
    n_too_long += told == grpc::StatusCode::INVALID_ARGUMENT;  // for the context
  }
  CHECK(n_refused == 3);
  CHECK(n_too_long == 1);
}

TEST_CASE("a connection has 1024 calls at once: one more waits for the end of another") {
  constexpr int kCalls = 1024;
  ServedGrpc served;
  served.generator->hold = true;
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>>> readers;
  const auto start = [&] {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(served.stub->AsyncGenerate(contexts.back().get(), OfIds({5}, 9), &queue,
                                                 contexts.back().get()));
  };
  for (int i = 0; i < kCalls; ++i) start();
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == kCalls; }));
  start();
  CHECK_FALSE(served.WaitFor([&] { return served.grpc->n_calls() > kCalls; }, absl::Seconds(1)));
  contexts.front()->TryCancel();
  CHECK(served.WaitFor([&] { return served.generator->n_submitted == kCalls + 1; }));
  // The stream of a cancelled call ends before its last callback: both are counted for a moment.
  CHECK(served.WaitFor([&] { return served.grpc->n_calls() <= kCalls; }));
  for (const auto& context : contexts) context->TryCancel();
  CHECK(served.WaitFor([&] { return served.grpc->n_calls() == 0; }));
  queue.Shutdown();
  void* tag = nullptr;
  for (bool ok = false; queue.Next(&tag, &ok);) {
  }
}

TEST_CASE("the control server has nothing but control streams") {
  const ServedGrpc served;  // with reflection and health
  const auto control = ControlServer::Start({});
  REQUIRE(control.ok());
  const auto code_of = [](int port, const std::string& method) {
    grpc::GenericStub stub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const grpc::Slice nothing;
    const auto call =
        stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&nothing, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    REQUIRE(queue.Next(&tag, &ok));
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
    return status.error_code();
  };
  const std::string reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  CHECK(code_of((*control)->port(), reflection) == grpc::StatusCode::UNIMPLEMENTED);
  CHECK(code_of(served.grpc->port(), reflection) != grpc::StatusCode::UNIMPLEMENTED);
  const std::string health = "/grpc.health.v1.Health/Check";
  CHECK(code_of((*control)->port(), health) == grpc::StatusCode::UNIMPLEMENTED);
  CHECK(code_of(served.grpc->port(), health) == grpc::StatusCode::OK);
}

}  // namespace
}  // namespace baton
