#include "server/grpc/rpc_methods.h"

#include <utility>

#include "completion.pb.h"
#include "server/api/api_front.h"
#include "server/api/text_tokens.h"
#include "server/grpc/rpc_answer.h"
#include "server/grpc/rpc_request.h"
#include "text/detokenizer.h"

namespace baton {
namespace {

void Generate(ApiFront& front, ApiCall call) { front.Generate(kRpcGenerateApi, std::move(call)); }

void Tokenize(ApiFront& front, ApiCall call) {
  front.AnswerText(std::move(call),
                   [](const ServedModel& model, int64_t max_context,
                      std::string_view body) -> ApiFront::TextAnswer {
                     std::string json;
                     if (auto problem = TokenizeJson(body, &json)) return *std::move(problem);
                     auto found = TokensOf(model, json);
                     if (auto* problem = std::get_if<ApiError>(&found)) return std::move(*problem);
                     v1::TokenizeResponse response;
                     for (const int32_t token : std::get<TokenizedText>(found).tokens)
                       response.add_tokens(token);
                     response.set_max_model_len(max_context);
                     return response.SerializeAsString();
                   });
}

void Detokenize(ApiFront& front, ApiCall call) {
  front.AnswerText(
      std::move(call),
      [](const ServedModel& model, int64_t, std::string_view body) -> ApiFront::TextAnswer {
        std::string json;
        if (auto problem = DetokenizeJson(body, &json)) return *std::move(problem);
        auto found = TextOfTokens(model, json);
        if (auto* problem = std::get_if<ApiError>(&found)) return std::move(*problem);
        v1::DetokenizeResponse response;
        response.set_text(ValidUtf8(std::get<std::string>(found)));
        return response.SerializeAsString();
      });
}

template <typename Message>
void ReplyMessage(ApiFront& front, const ApiCall& call, const Message& message) {
  HttpReply reply;
  reply.body = message.SerializeAsString();
  front.Reply(call, std::move(reply));
}

void ListModels(ApiFront& front, ApiCall call) {
  const ServedModel& model = front.model();
  v1::ListModelsResponse response;
  std::vector<std::string> names = {model.name};
  names.insert(names.end(), model.aliases.begin(), model.aliases.end());
  for (const std::string& name : names) {
    v1::Model* const told = response.add_models();
    told->set_id(name);
    told->set_root(model.name);
    told->set_created(model.created);
    told->set_max_model_len(model.MaxContext(front.generator().View().max_context));
    told->set_n_vocab(model.vocab);
    told->set_n_ctx_train(model.max_context);
    told->set_n_params(model.n_parameters);
  }
  ReplyMessage(front, call, response);
}

const char* NameOf(Role role) {
  if (role == Role::kBoth) return "both";
  return role == Role::kPrefill ? "prefill" : "decode";
}

void GetLoads(ApiFront& front, ApiCall call) {
  const ClusterView view = front.generator().View();
  v1::GetLoadsResponse response;
  response.set_ready(!front.NotReady());
  response.set_running(view.running);
  response.set_waiting(view.waiting);
  for (const WorkerView& worker : front.generator().Workers()) {
    v1::WorkerLoad* const told = response.add_workers();
    told->set_name(worker.name);
    told->set_role(NameOf(worker.role));
    told->set_draining(worker.draining);
    told->set_standing(worker.standing);
    told->set_requests(worker.requests);
    told->set_prefill_queued_tokens(worker.prefill_queued_tokens);
    told->set_decode_rows(worker.decode_rows);
    told->set_decode_waiting(worker.decode_waiting);
    told->set_max_batch(worker.max_batch);
    told->set_kv_pages_total(worker.pages_total);
    told->set_kv_pages_free(worker.pages_free);
    told->set_kv_pages_promised(worker.pages_promised);
  }
  ReplyMessage(front, call, response);
}

}  // namespace

// HTTP/2 has signs of life of its own.
const GenerationApi kRpcGenerateApi = {
    .name = "grpc_generate",
    .parse = ParseGenerate,
    .answer = [](const ServedModel& model, const ApiRequest& request,
                 const std::vector<PreparedPrompt>& prompts,
                 const AnswerAbout& about) -> std::unique_ptr<Answer> {
      return std::make_unique<RpcAnswer>(model, request, prompts, about);
    },
    .keep_alive = "",
};

std::span<const Route> RpcMethods() {
  using enum Scope;
  static constexpr Route kMethods[] = {
      {"POST", "/baton.v1.Completion/Generate", kInference, Generate, "A stream of tokens",
       "grpc_generate"},
      {"POST", "/baton.v1.Completion/Tokenize", kInference, Tokenize, "Token ids", "grpc_tokenize"},
      {"POST", "/baton.v1.Completion/Detokenize", kInference, Detokenize, "Their text",
       "grpc_detokenize"},
      {"POST", "/baton.v1.Completion/ListModels", kInference, ListModels, "Names of the model",
       "grpc_models"},
      {"POST", "/baton.v1.Completion/GetLoads", kMetrics, GetLoads, "Loads of workers",
       "grpc_loads"},
  };
  return kMethods;
}

}  // namespace baton
