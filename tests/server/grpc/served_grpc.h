// The real front of the demo model over a fake cluster (served_api.h), with a gRPC server beside
// the one of HTTP, and a client of both.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "completion.grpc.pb.h"
#include "rpc_status.pb.h"
#include "server/grpc/completion_service.h"
#include "tests/server/api/served_api.h"

namespace baton {

struct ServedGrpc : Served {
  explicit ServedGrpc(GrpcOptions grpc_options = {}, ApiFrontOptions api = {},
                      ApiFrontFacts facts = {})
      : Served({}, std::move(api), "demo,other", std::move(facts)) {
    On([&] {
      auto started = CompletionService::Start(&loop, grpc_options, front.get());
      REQUIRE(started.ok());
      grpc = *std::move(started);
      front->Attach(server.get(), grpc.get());
      grpc->SetServing(true);
    });
    channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", grpc->port()),
                                  grpc::InsecureChannelCredentials());
    stub = v1::Completion::NewStub(channel);
  }
  ~ServedGrpc() {
    Stop();
    grpc.reset();
  }

  std::unique_ptr<CompletionService> grpc;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Completion::Stub> stub;
};

// All that a call of Generate brought.
struct Generated {
  std::vector<v1::GenerateResponse> responses{};
  grpc::Status status{};

  std::string text(int choice = 0) const {
    std::string text;
    for (const auto& response : responses)
      for (const auto& delta : response.choices())
        if (delta.index() == choice) text += delta.text();
    return text;
  }
  v1::ChoiceDelta last_delta() const {
    v1::ChoiceDelta last;
    for (const auto& response : responses)
      if (response.choices_size() > 0) last = response.choices(response.choices_size() - 1);
    return last;
  }
  v1::Usage usage() const { return responses.back().usage(); }
};

inline Generated Generate(v1::Completion::Stub* stub, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, request);
  Generated generated;
  for (v1::GenerateResponse response; reader->Read(&response);)
    generated.responses.push_back(response);
  generated.status = reader->Finish();
  return generated;
}

inline v1::GenerateRequest OfIds(const std::vector<int32_t>& ids, int max_tokens) {
  v1::GenerateRequest request;
  for (const int32_t id : ids) request.mutable_prompt_token_ids()->add_ids(id);
  request.set_max_tokens(max_tokens);
  return request;
}

inline rpc::Status DetailsOf(const grpc::Status& status) {
  rpc::Status details;
  REQUIRE(details.ParseFromString(status.error_details()));
  CHECK(details.code() == static_cast<int>(status.error_code()));
  CHECK(details.message() == status.error_message());
  return details;
}

// The detail of that name; empty: there is none.
template <typename Detail>
std::optional<Detail> FindDetail(const grpc::Status& status, const std::string& name) {
  const rpc::Status details = DetailsOf(status);
  for (const auto& any : details.details()) {
    Detail detail;
    if (any.type_url() != "type.googleapis.com/google.rpc." + name) continue;
    REQUIRE(detail.ParseFromString(any.value()));
    return detail;
  }
  return std::nullopt;
}

inline std::string FieldOf(const grpc::Status& status) {
  const auto bad = FindDetail<rpc::BadRequest>(status, "BadRequest");
  return bad ? bad->field_violations(0).field() : "";
}

}  // namespace baton
