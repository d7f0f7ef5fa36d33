// GET /health and its other names: whether the cluster can serve; /livez: whether the process runs.
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"

namespace baton {

void AnswerHealth(ApiFront& front, ApiCall call) {
  if (front.IsReady()) {
    AnswerLive(front, std::move(call));
  } else {
    front.Reply(call, ErrorReply(front.NotReady()));
  }
}

void AnswerLive(ApiFront& front, ApiCall call) {
  HttpReply reply;
  reply.body = JsonObject([](JsonWriter& json) { json.Field("status", "ok"); });
  front.Reply(call, std::move(reply));
}

}  // namespace baton
