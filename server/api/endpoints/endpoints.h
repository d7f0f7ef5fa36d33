// The endpoints: each function answers the requests of its rows in route_table.cc. Front
// thread.
#pragma once

#include "server/api/api_front.h"
#include "server/api/generation_api.h"
#include "server/api/routes.h"

namespace baton {

// All rows, for ApiFront.
std::span<const Route> RouteTable();

// 200 with a JSON body.
inline void ReplyJson(ApiFront& front, const ApiCall& call, std::string body) {
  HttpReply reply;
  reply.body = std::move(body);
  front.Reply(call, std::move(reply));
}

// completions.cc, chat_completions.cc: tokens.
extern const GenerationApi kCompletionsApi, kChatCompletionsApi;
void AnswerCompletions(ApiFront& front, ApiCall call);
void AnswerChatCompletions(ApiFront& front, ApiCall call);

// messages.cc: Anthropic's API.
extern const GenerationApi kMessagesApi;
void AnswerMessages(ApiFront& front, ApiCall call);
void AnswerCountTokens(ApiFront& front, ApiCall call);

// responses.cc: OpenAI's other API for conversations, with those that are stored.
extern const GenerationApi kResponsesApi;
void AnswerResponses(ApiFront& front, ApiCall call);
void AnswerResponse(ApiFront& front, ApiCall call);
void AnswerDeleteResponse(ApiFront& front, ApiCall call);
void AnswerCancelResponse(ApiFront& front, ApiCall call);
void AnswerInputItems(ApiFront& front, ApiCall call);

// stored_chats.cc: chat completions that were to be stored.
void AnswerStoredChats(ApiFront& front, ApiCall call);
void AnswerStoredChat(ApiFront& front, ApiCall call);
void AnswerChangeStoredChat(ApiFront& front, ApiCall call);
void AnswerDeleteStoredChat(ApiFront& front, ApiCall call);
void AnswerStoredMessages(ApiFront& front, ApiCall call);

// models.cc: the list, and one by its name.
void AnswerModels(ApiFront& front, ApiCall call);
void AnswerModel(ApiFront& front, ApiCall call);

// health.cc: 200 when the cluster can serve, and 200 always.
void AnswerHealth(ApiFront& front, ApiCall call);
void AnswerLive(ApiFront& front, ApiCall call);

// tokenize.cc, apply_template.cc: text work without a worker.
void AnswerTokenize(ApiFront& front, ApiCall call);
void AnswerDetokenize(ApiFront& front, ApiCall call);
void AnswerApplyTemplate(ApiFront& front, ApiCall call);

// cluster.cc, load.cc.
void AnswerCluster(ApiFront& front, ApiCall call);
void AnswerClusterLive(ApiFront& front, ApiCall call);
void AnswerLoad(ApiFront& front, ApiCall call);

// ui.cc: the page and its parts, which hold no data; its scripts ask with the user's key.
void AnswerUi(ApiFront& front, ApiCall call);

// openapi.cc: the API as an OpenAPI 3.1 document.
std::string OpenApiDocument(const std::string& version);
void AnswerOpenApi(ApiFront& front, ApiCall call);

// api_reference.cc: docs/API.md, from the same tables.
std::string ApiReference();

// metrics.cc, version.cc.
void AnswerMetrics(ApiFront& front, ApiCall call);
void AnswerVersion(ApiFront& front, ApiCall call);

}  // namespace baton
