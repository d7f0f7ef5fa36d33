// Errors of the API as gRPC has them: a status, and beside it what a program can read (ErrorInfo,
// BadRequest with the field, RetryInfo), as google.rpc.Status. Pure functions, any thread.
#pragma once

#include "server/api/api_error.h"

namespace baton {

// ApiCall::refusal of gRPC. The reply's body is a serialized baton.rpc.Status, whose code is one of
// absl's, which are gRPC's.
HttpReply RpcRefusal(const ApiError& error);

}  // namespace baton
