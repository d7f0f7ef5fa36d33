// GET /health and its other names: whether the cluster can serve; /livez: whether the process runs.
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"

namespace baton {

void AnswerHealth(ApiFront& front, ApiCall call) {
  if (const auto error = front.NotReady()) {
    front.Reply(call, ErrorReply(*error));
  } else {
    AnswerLive(front, std::move(call));
  }
}

void AnswerLive(ApiFront& front, ApiCall call) {
  HttpReply reply;
  reply.body = JsonObject([](JsonWriter& json) { json.Field("status", "ok"); });
  front.Reply(call, std::move(reply));
}

}  // namespace baton
