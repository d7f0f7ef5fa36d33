// The methods of baton.v1.Completion: rows as those of HTTP's endpoints (server/api/routes.h),
// whose paths are gRPC's. Bodies and answers are serialized messages. Front thread.
#pragma once

#include <span>

#include "server/api/generation_api.h"
#include "server/api/routes.h"

namespace baton {

inline constexpr char kCompletionService[] = "baton.v1.Completion";

extern const GenerationApi kRpcGenerateApi;
std::span<const Route> RpcMethods();

}  // namespace baton
