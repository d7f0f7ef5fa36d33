// The endpoints of the API. A new endpoint: a file with its function here, declared in endpoints.h,
// and a row; what it answers goes into openapi.cc.
#include "server/api/endpoints/endpoints.h"

namespace baton {

std::span<const Route> RouteTable() {
  static constexpr Route kRoutes[] = {
      {"POST", "/v1/completions", AnswerCompletions, "Goes on with prompts", "completions"},
      {"POST", "/v1/chat/completions", AnswerChatCompletions, "Answers a conversation", "chat"},
      {"GET", "/v1/chat/completions", AnswerStoredChats, "Stored chat completions"},
      {"GET", "/v1/chat/completions/{id}", AnswerStoredChat, "A stored chat completion"},
      {"POST", "/v1/chat/completions/{id}", AnswerChangeStoredChat, "Changes its metadata"},
      {"DELETE", "/v1/chat/completions/{id}", AnswerDeleteStoredChat, "Removes it"},
      {"GET", "/v1/chat/completions/{id}/messages", AnswerStoredMessages,
       "The messages that it answers"},
      {"POST", "/v1/responses", AnswerResponses, "Answers a conversation, which may be stored",
       "responses"},
      {"GET", "/v1/responses/{id}", AnswerResponse, "A stored response"},
      {"DELETE", "/v1/responses/{id}", AnswerDeleteResponse, "Removes it"},
      {"POST", "/v1/responses/{id}/cancel", AnswerCancelResponse,
       "Ends a response that still runs, as it is"},
      {"GET", "/v1/responses/{id}/input_items", AnswerInputItems, "The items that it answers"},
      {"POST", "/v1/messages", AnswerMessages, "Answers a conversation, as Anthropic's API",
       "messages"},
      {"POST", "/v1/messages/count_tokens", AnswerCountTokens, "Tokens of such a conversation"},
      {"GET", "/v1/models", AnswerModels, "The served model, once per name"},
      {"GET", "/v1/models/*", AnswerModel, "The model by one of its names"},
      {"POST", "/tokenize", AnswerTokenize, "Token ids of a text or a conversation"},
      {"POST", "/detokenize", AnswerDetokenize, "The text of token ids"},
      {"POST", "/apply-template", AnswerApplyTemplate, "The prompt that a conversation becomes"},
      {"GET", "/v1/cluster", AnswerCluster, "Workers, requests and KV pages"},
      {"GET", "/load", AnswerLoad, "Requests in the server"},
      {"GET", "/health", AnswerHealth, "200 when the cluster can serve, else 503"},
      {"GET", "/v1/health", AnswerHealth, "As /health"},
      {"GET", "/ping", AnswerHealth, "As /health"},
      {"GET", "/readyz", AnswerHealth, "As /health"},
      {"GET", "/livez", AnswerLive, "200 while the process runs"},
      {"GET", "/metrics", AnswerMetrics, "Metrics in the text format of Prometheus"},
      {"GET", "/version", AnswerVersion, "The version of the server"},
      {"GET", "/openapi.json", AnswerOpenApi, "This description"},
      {"POST", "/v1/embeddings", nullptr, "Not supported"},
      {"POST", "/v1/audio/speech", nullptr, "Not supported"},
      {"POST", "/v1/audio/transcriptions", nullptr, "Not supported"},
      {"POST", "/v1/audio/translations", nullptr, "Not supported"},
      {"POST", "/v1/images/generations", nullptr, "Not supported"},
      {"POST", "/v1/images/edits", nullptr, "Not supported"},
      {"POST", "/v1/images/variations", nullptr, "Not supported"},
  };
  return kRoutes;
}

}  // namespace baton
