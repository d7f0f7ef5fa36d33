// GET /openapi.json: the API as an OpenAPI 3.1 document: routes from the route table, requests from
// the table of fields.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "server/api/endpoints/answer_schemas.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/fields/field_schema.h"
#include "server/api/json_writer.h"

namespace baton {
namespace {

// The bodies that a path takes and answers, beside its row in the route table.
struct Content {
  std::string_view path;
  std::string_view answer;   // a name of NamedSchemas; empty: text
  std::string_view request;  // the name of its bodies' schema; empty: no body
  Endpoint endpoint = Endpoint::kCompletions;
  std::string_view event = "";   // of a stream; empty: not streamed
  std::string_view method = "";  // empty: any
};
constexpr Content kContents[] = {
    {"/v1/completions", "Completion", "CompletionRequest", Endpoint::kCompletions, "Completion"},
    {"/v1/chat/completions", "ChatCompletion", "ChatCompletionRequest", Endpoint::kChat,
     "ChatCompletionChunk", "POST"},
    {"/v1/chat/completions", "ChatCompletionList", ""},
    {"/v1/chat/completions/{id}", "ChatCompletion", "StoredChatChange", Endpoint::kStoredChat, "",
     "POST"},
    {"/v1/chat/completions/{id}", "Deleted", "", Endpoint::kStoredChat, "", "DELETE"},
    {"/v1/chat/completions/{id}", "ChatCompletion", ""},
    {"/v1/chat/completions/{id}/messages", "StoredMessageList", ""},
    {"/v1/responses", "Response", "ResponsesRequest", Endpoint::kResponses, "ResponseEvent"},
    {"/v1/responses/{id}", "Deleted", "", Endpoint::kResponses, "", "DELETE"},
    {"/v1/responses/{id}", "Response", ""},
    {"/v1/responses/{id}/cancel", "Response", ""},
    {"/v1/responses/{id}/input_items", "InputItemList", ""},
    {"/v1/messages", "AnthropicMessage", "MessagesRequest", Endpoint::kMessages, "AnthropicEvent"},
    {"/v1/messages/count_tokens", "TokenCount", "CountTokensRequest", Endpoint::kCountTokens},
    {"/tokenize", "Tokens", "TokenizeRequest", Endpoint::kTokenize},
    {"/detokenize", "Text", "DetokenizeRequest", Endpoint::kDetokenize},
    {"/apply-template", "Prompt", "ApplyTemplateRequest", Endpoint::kApplyTemplate},
    {"/v1/models", "ModelList", ""},
    {"/v1/models/*", "Model", ""},
    {"/v1/cluster", "Cluster", ""},
    {"/v1/cluster/live", "ClusterLive", ""},
    {"/load", "Load", ""},
    {"/health", "Health", ""},
    {"/v1/health", "Health", ""},
    {"/ping", "Health", ""},
    {"/readyz", "Health", ""},
    {"/livez", "Health", ""},
    {"/version", "Version", ""},
    {"/metrics", "", ""},
    {"/ui", "", ""},
    {"/ui/", "", ""},
    {"/ui/{id}", "", ""},
    {"/openapi.json", "", ""},
};

const Content* ContentOf(const Route& route) {
  const auto* found =
      std::find_if(std::begin(kContents), std::end(kContents), [&](const Content& content) {
        return content.path == route.path &&
               (content.method.empty() || content.method == route.method);
      });
  return found == std::end(kContents) ? nullptr : found;
}

// A schema by reference, under the content type.
void WriteContent(JsonWriter& json, std::string_view type, std::string_view schema) {
  json.Object(type, [&] {
    json.Object("schema", [&] {
      if (schema.empty()) {
        json.Field("type", type == "application/json" ? "object" : "string");
      } else {
        json.Field("$ref", "#/components/schemas/" + std::string(schema));
      }
    });
  });
}

// Every answer has its request's id.
void WriteHeaders(JsonWriter& json) {
  json.Object("headers", [&] {
    json.Object("X-Request-Id",
                [&] { json.JsonField("schema", R"({"type":"string","maxLength":128})"); });
  });
}

void WriteSuccess(JsonWriter& json, const Route& route, const Content* content) {
  if (content == nullptr) return;
  json.Object("200", [&] {
    json.Field("description", route.summary);
    WriteHeaders(json);
    json.Object("content", [&] {
      const bool is_page = content->path.starts_with("/ui");
      const bool is_text = content->path == "/metrics";
      WriteContent(json,
                   is_page   ? "text/html"
                   : is_text ? "text/plain"
                             : "application/json",
                   content->answer);
      if (!content->event.empty()) WriteContent(json, "text/event-stream", content->event);
    });
  });
}

void WriteOperation(JsonWriter& json, const Route& route) {
  const Content* content = ContentOf(route);
  json.Object(absl::AsciiStrToLower(std::string(route.method)), [&] {
    json.Field("summary", route.summary);
    if (route.scope == Scope::kOpen) json.Array("security", [] {});
    const bool has_id = route.path.find("{id}") != std::string_view::npos;
    if (has_id || route.path.ends_with('*')) {
      json.Array("parameters", [&] {
        json.Object([&] {
          json.Field("name", has_id ? "id" : "model");
          json.Field("in", "path");
          json.Field("required", true);
          json.JsonField("schema", R"({"type":"string"})");
        });
      });
    }
    if (content != nullptr && !content->request.empty()) {
      json.Object("requestBody", [&] {
        json.Field("required", true);
        json.Object("content", [&] { WriteContent(json, "application/json", content->request); });
      });
    }
    json.Object("responses", [&] {
      WriteSuccess(json, route, content);
      json.Object("default", [&] {
        json.Field("description", content == nullptr ? "501: not supported" : "An error");
        WriteHeaders(json);
        const bool is_anthropic = route.path.starts_with("/v1/messages");
        json.Object("content", [&] {
          WriteContent(json, "application/json", is_anthropic ? "AnthropicError" : "Error");
        });
      });
    });
  });
}

std::string PathOf(const Route& route) {
  std::string path(route.path);
  if (path.ends_with('*')) path.replace(path.size() - 1, 1, "{model}");
  return path;
}

}  // namespace

std::string OpenApiDocument(const std::string& version) {
  return JsonObject([&](JsonWriter& json) {
    json.Field("openapi", "3.1.0");
    json.Object("info", [&] {
      json.Field("title", "Baton");
      json.Field("version", version);
      json.Field("description",
                 "OpenAI's API with the additions of vLLM and llama.cpp. A field is honoured, has "
                 "no effect and says so, or is refused by name; names that no row has are "
                 "ignored.");
    });
    json.Object("paths", [&] {
      // A path stands once, with all of its methods.
      const auto routes = RouteTable();
      for (size_t i = 0; i < routes.size(); ++i) {
        const auto same = [&](const Route& other) { return other.path == routes[i].path; };
        if (std::any_of(routes.begin(), routes.begin() + static_cast<std::ptrdiff_t>(i), same))
          continue;
        json.Object(PathOf(routes[i]), [&] {
          for (const Route& route : routes)
            if (same(route)) WriteOperation(json, route);
        });
      }
    });
    // Holds for a server that has keys.
    json.Array("security", [&] {
      for (const char* scheme : {"bearer", "x-api-key"})
        json.Object([&] { json.Array(scheme, [] {}); });
    });
    json.Object("components", [&] {
      json.JsonField("securitySchemes",
                     R"({"bearer":{"type":"http","scheme":"bearer"},)"
                     R"("x-api-key":{"type":"apiKey","in":"header","name":"x-api-key"}})");
      json.Object("schemas", [&] {
        for (const Content& content : kContents) {
          if (content.request.empty()) continue;
          json.Key(content.request);
          WriteRequestSchema(json, content.endpoint);
        }
        for (const auto schemas : {NamedSchemas(), StoredSchemas()})
          for (const NamedSchema& named : schemas) json.JsonField(named.name, named.schema);
      });
    });
  });
}

void AnswerOpenApi(ApiFront& front, ApiCall call) {
  // Made once: a process has one version, and the document takes milliseconds.
  static const std::string document = OpenApiDocument(front.facts().version);
  HttpReply reply;
  reply.body = document;
  front.Reply(call, std::move(reply));
}

}  // namespace baton
