// GET /load: requests in the server, as vLLM.
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"

namespace baton {

void AnswerLoad(ApiFront& front, ApiCall call) {
  const ClusterView view = front.generator().View();
  HttpReply reply;
  reply.body =
      JsonObject([&](JsonWriter& json) { json.Field("server_load", view.running + view.waiting); });
  front.Reply(call, std::move(reply));
}

}  // namespace baton
