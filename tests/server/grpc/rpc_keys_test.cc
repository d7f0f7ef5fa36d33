// Keys of gRPC's calls: every method needs one of its scope, and says why it refuses.
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/access/api_keys.h"
#include "server/grpc/rpc_methods.h"
#include "tests/server/grpc/served_grpc.h"

namespace baton {
namespace {

constexpr Scope kScopes[] = {Scope::kInference, Scope::kMetrics, Scope::kAdmin};

std::string KeyOf(Scope scope) { return absl::StrCat("key-of-scope-", static_cast<int>(scope)); }

std::vector<KeyEntry> OneKeyPerScope() {
  std::vector<KeyEntry> entries;
  for (const Scope scope : kScopes)
    entries.push_back({.name = absl::StrCat("name-", static_cast<int>(scope)),
                       .digest = KeyDigest::Of(KeyOf(scope)),
                       .tenant = "t",
                       .scopes = SetOf(scope)});
  return entries;
}

// Calls a method with an empty message, whatever it takes.
grpc::Status Call(v1::Completion::Stub* stub, std::string_view path, const std::string& name,
                  const std::string& value) {
  grpc::ClientContext context;
  if (!name.empty()) context.AddMetadata(name, value);
  const std::string method(path.substr(path.rfind('/') + 1));
  if (method == "Generate") {
    const auto reader = stub->Generate(&context, {});
    for (v1::GenerateResponse response; reader->Read(&response);) {
    }
    return reader->Finish();
  }
  v1::TokenizeResponse tokens;
  v1::DetokenizeResponse text;
  v1::ListModelsResponse models;
  v1::GetLoadsResponse loads;
  if (method == "Tokenize") return stub->Tokenize(&context, {}, &tokens);
  if (method == "Detokenize") return stub->Detokenize(&context, {}, &text);
  if (method == "ListModels") return stub->ListModels(&context, {}, &models);
  REQUIRE(method == "GetLoads");
  return stub->GetLoads(&context, {}, &loads);
}

bool IsRefused(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
}

TEST_CASE("every method needs a key of its scope") {
  const ApiKeys keys(OneKeyPerScope());
  const ServedGrpc served({}, {}, {.version = "test", .keys = &keys});
  v1::Completion::Stub* const stub = served.stub.get();
  for (const Route& method : RpcMethods()) {
    CAPTURE(method.path);
    REQUIRE(method.scope != Scope::kOpen);
    const grpc::Status none = Call(stub, method.path, "", "");
    CHECK(none.error_code() == grpc::StatusCode::UNAUTHENTICATED);
    CHECK(FindDetail<rpc::ErrorInfo>(none, "ErrorInfo")->reason() == "INVALID_API_KEY");
    const grpc::Status wrong = Call(stub, method.path, "authorization", "Bearer something-else");
    CHECK(wrong.error_code() == grpc::StatusCode::UNAUTHENTICATED);
    CHECK_FALSE(absl::StrContains(wrong.error_message(), "something-else"));
    for (const Scope scope : kScopes) {
      CAPTURE(static_cast<int>(scope));
      const std::string bearer = absl::StrCat("Bearer ", KeyOf(scope));
      const grpc::Status status = Call(stub, method.path, "authorization", bearer);
      if (scope == method.scope)
        CHECK_FALSE(IsRefused(status));
      else
        CHECK(status.error_code() == grpc::StatusCode::PERMISSION_DENIED);
    }
    CHECK_FALSE(IsRefused(Call(stub, method.path, "x-api-key", KeyOf(method.scope))));
  }
}

TEST_CASE("a key's limits hold for both protocols together") {
  std::vector<KeyEntry> entries = OneKeyPerScope();
  for (KeyEntry& entry : entries) entry.requests_per_second = 0.01;  // the first one, then none
  const ApiKeys keys(entries);
  const ServedGrpc served({}, {}, {.version = "test", .keys = &keys});
  const std::string bearer = absl::StrCat("Bearer ", KeyOf(Scope::kInference));
  const std::string_view path = "/baton.v1.Completion/ListModels";
  CHECK(Call(served.stub.get(), path, "authorization", bearer).ok());
  const grpc::Status limited = Call(served.stub.get(), path, "authorization", bearer);
  CHECK(limited.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(FindDetail<rpc::RetryInfo>(limited, "RetryInfo")->retry_delay().seconds() > 10);
}

}  // namespace
}  // namespace baton
