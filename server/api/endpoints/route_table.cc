// The endpoints of the API, and which scope a key needs for each. A new endpoint: a file with its
// function here, declared in endpoints.h, and a row; what it answers goes into openapi.cc.
#include "server/api/endpoints/endpoints.h"

namespace baton {

std::span<const Route> RouteTable() {
  using enum Scope;
  static constexpr Route kRoutes[] = {
      {"POST", "/v1/completions", kInference, AnswerCompletions, "Goes on with prompts",
       "completions"},
      {"POST", "/v1/chat/completions", kInference, AnswerChatCompletions, "Answers a conversation",
       "chat"},
      {"GET", "/v1/chat/completions", kInference, AnswerStoredChats, "Stored chat completions"},
      {"GET", "/v1/chat/completions/{id}", kInference, AnswerStoredChat,
       "A stored chat completion"},
      {"POST", "/v1/chat/completions/{id}", kInference, AnswerChangeStoredChat,
       "Changes its metadata"},
      {"DELETE", "/v1/chat/completions/{id}", kInference, AnswerDeleteStoredChat, "Removes it"},
      {"GET", "/v1/chat/completions/{id}/messages", kInference, AnswerStoredMessages,
       "The messages that it answers"},
      {"POST", "/v1/responses", kInference, AnswerResponses,
       "Answers a conversation, which may be stored", "responses"},
      {"GET", "/v1/responses/{id}", kInference, AnswerResponse, "A stored response"},
      {"DELETE", "/v1/responses/{id}", kInference, AnswerDeleteResponse, "Removes it"},
      {"POST", "/v1/responses/{id}/cancel", kInference, AnswerCancelResponse,
       "Ends a response that still runs, as it is"},
      {"GET", "/v1/responses/{id}/input_items", kInference, AnswerInputItems,
       "The items that it answers"},
      {"POST", "/v1/messages", kInference, AnswerMessages,
       "Answers a conversation, as Anthropic's API", "messages"},
      {"POST", "/v1/messages/count_tokens", kInference, AnswerCountTokens,
       "Tokens of such a conversation"},
      {"GET", "/v1/models", kInference, AnswerModels, "The served model, once per name"},
      {"GET", "/v1/models/*", kInference, AnswerModel, "The model by one of its names"},
      {"POST", "/tokenize", kInference, AnswerTokenize, "Token ids of a text or a conversation"},
      {"POST", "/detokenize", kInference, AnswerDetokenize, "The text of token ids"},
      {"POST", "/apply-template", kInference, AnswerApplyTemplate,
       "The prompt that a conversation becomes"},
      {"GET", "/v1/cluster", kAdmin, AnswerCluster, "Workers, requests and KV pages"},
      {"GET", "/v1/cluster/live", kAdmin, AnswerClusterLive,
       "Workers, latencies and requests, for a page that asks again and again"},
      {"GET", "/load", kMetrics, AnswerLoad, "Requests in the server"},
      {"GET", "/health", kOpen, AnswerHealth, "200 when the cluster can serve, else 503"},
      {"GET", "/v1/health", kInference, AnswerHealth, "As /health"},
      {"GET", "/ping", kInference, AnswerHealth, "As /health"},
      {"GET", "/readyz", kOpen, AnswerHealth, "As /health"},
      {"GET", "/livez", kOpen, AnswerLive, "200 while the process runs"},
      {"GET", "/metrics", kMetrics, AnswerMetrics, "Metrics in the text format of Prometheus"},
      {"GET", "/version", kInference, AnswerVersion, "The version of the server"},
      {"GET", "/openapi.json", kInference, AnswerOpenApi, "This description"},
      {"GET", "/ui", kOpen, AnswerUi, "A page: chat, and what the cluster does"},
      {"GET", "/ui/", kOpen, AnswerUi, "Leads to /ui"},
      {"GET", "/ui/{id}", kOpen, AnswerUi, "A part of the page, by its name"},
      {"POST", "/v1/embeddings", kInference, nullptr, "Not supported"},
      {"POST", "/v1/audio/speech", kInference, nullptr, "Not supported"},
      {"POST", "/v1/audio/transcriptions", kInference, nullptr, "Not supported"},
      {"POST", "/v1/audio/translations", kInference, nullptr, "Not supported"},
      {"POST", "/v1/images/generations", kInference, nullptr, "Not supported"},
      {"POST", "/v1/images/edits", kInference, nullptr, "Not supported"},
      {"POST", "/v1/images/variations", kInference, nullptr, "Not supported"},
  };
  return kRoutes;
}

}  // namespace baton
