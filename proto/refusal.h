// The last word about a part that no scheduler knows: its request was refused. Pure function, any
// thread.
#pragma once

#include <string>
#include <type_traits>

#include "common/status.h"
#include "proto/messages.h"

namespace baton {

// Request: PrefillRequest or DecodeRequest.
template <typename Request>
PartEnded RefusalOf(const Request& request, const absl::Status& why, PartFault fault) {
  return {.request_id = request.request_id,
          .epoch = request.epoch,
          .was_prefill = std::is_same_v<Request, PrefillRequest>,
          .reason = EndReason::kFailed,
          .fault = fault,
          .message = std::string(why.message())};
}

}  // namespace baton
