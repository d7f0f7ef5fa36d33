// GET /v1/models and /v1/models/NAME: what OpenAI's API says of a model, with vLLM's and
// llama.cpp's additions (max_model_len, meta).
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"

namespace baton {
namespace {

void WriteModel(const ApiFront& front, std::string_view name, JsonWriter& json) {
  const ServedModel& model = front.model();
  json.Object([&] {
    json.Field("id", name);
    json.Field("object", "model");
    json.Field("created", model.created);
    json.Field("owned_by", "baton");
    json.Field("root", model.name);
    json.Field("parent", nullptr);
    json.Field("max_model_len", front.model().MaxContext(front.generator().View().max_context));
    json.Object("meta", [&] {
      json.Field("n_vocab", model.vocab);
      json.Field("n_ctx_train", model.max_context);
      json.Field("n_params", model.n_parameters);
    });
  });
}

}  // namespace

void AnswerModels(ApiFront& front, ApiCall call) {
  HttpReply reply;
  reply.body = JsonObject([&](JsonWriter& json) {
    json.Field("object", "list");
    json.Array("data", [&] {
      WriteModel(front, front.model().name, json);
      for (const std::string& alias : front.model().aliases) WriteModel(front, alias, json);
    });
  });
  front.Reply(call, std::move(reply));
}

void AnswerModel(ApiFront& front, ApiCall call) {
  const std::string& name = call.argument;
  if (name.empty() || !front.model().IsCalled(name)) {
    front.Reply(call, ErrorReply(UnknownModel(name)));
    return;
  }
  HttpReply reply;
  JsonWriter json(&reply.body);
  WriteModel(front, name, json);
  front.Reply(call, std::move(reply));
}

}  // namespace baton
