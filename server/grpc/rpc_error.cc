#include "server/grpc/rpc_error.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "rpc_status.pb.h"
#include "text/detokenizer.h"

namespace baton {
namespace {

absl::StatusCode CodeOf(const ApiError& error) {
  if (error.code == "timeout") return absl::StatusCode::kDeadlineExceeded;
  switch (error.status) {
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 413:
    case 429:
      return absl::StatusCode::kResourceExhausted;
    case 501:
      return absl::StatusCode::kUnimplemented;
    case 503:
      return absl::StatusCode::kUnavailable;
    default:
      return error.status < 500 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal;
  }
}

template <typename Detail>
void AddDetail(const char* name, const Detail& detail, rpc::Status* status) {
  google::protobuf::Any* const any = status->add_details();
  any->set_type_url(absl::StrCat("type.googleapis.com/google.rpc.", name));
  any->set_value(detail.SerializeAsString());
}

}  // namespace

// Messages may show what a client sent, and bytes of the client's need not be text.
HttpReply RpcRefusal(const ApiError& error) {
  rpc::Status status;
  status.set_code(static_cast<int>(CodeOf(error)));
  status.set_message(ValidUtf8(error.message));
  rpc::ErrorInfo info;
  info.set_reason(error.code.empty() ? "INVALID_REQUEST" : absl::AsciiStrToUpper(error.code));
  info.set_domain("baton");
  auto& metadata = *info.mutable_metadata();
  metadata["request_id"] = error.request_id;
  if (error.n_prompt_tokens) metadata["n_prompt_tokens"] = absl::StrCat(*error.n_prompt_tokens);
  if (error.n_ctx) metadata["n_ctx"] = absl::StrCat(*error.n_ctx);
  AddDetail("ErrorInfo", info, &status);
  if (!error.param.empty()) {
    rpc::BadRequest bad;
    rpc::BadRequest::FieldViolation* const violation = bad.add_field_violations();
    violation->set_field(ValidUtf8(error.param));
    violation->set_description(status.message());
    AddDetail("BadRequest", bad, &status);
  }
  if (error.retry_after) {
    rpc::RetryInfo retry;
    const int64_t ms = absl::ToInt64Milliseconds(*error.retry_after);
    retry.mutable_retry_delay()->set_seconds(ms / 1000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(ms % 1000 * 1000000));
    AddDetail("RetryInfo", retry, &status);
  }
  HttpReply reply;
  reply.status = error.status;
  reply.content_type = "application/grpc";
  reply.body = status.SerializeAsString();
  return reply;
}

}  // namespace baton
