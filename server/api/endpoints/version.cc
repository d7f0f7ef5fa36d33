// GET /version: as vLLM.
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"

namespace baton {

void AnswerVersion(ApiFront& front, ApiCall call) {
  HttpReply reply;
  reply.body = JsonObject([&](JsonWriter& json) { json.Field("version", front.facts().version); });
  front.Reply(call, std::move(reply));
}

}  // namespace baton
