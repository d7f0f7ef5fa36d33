// docs/API.md from the route table and the table of fields.
#include "absl/strings/str_cat.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/fields/field_reference.h"

namespace baton {
namespace {

constexpr char kHead[] =
    R"(# The HTTP API

Written by `baton api --markdown` from the tables that the server itself runs by (`server/api/endpoints/route_table.cc`,
`server/api/fields`); a test holds this page equal to them. `baton api` prints the same as an OpenAPI 3.1 document, which
the server answers at `/openapi.json`.

## Endpoints

| method | path | scope | answer |
|---|---|---|---|
)";

constexpr char kErrors[] = R"(
`scope` is what the key of a request must have where Baton has keys ([SECURITY.md](SECURITY.md)): `Authorization: Bearer
KEY` or `x-api-key: KEY`. Paths without one, and `OPTIONS`, need no key.

`*` is the name of a model, `{id}` that of a stored answer or of a part of the page. `--served-model-name A --served-model-name B` serves the model under several names; the
first one is in answers.

Every answer has the header `X-Request-Id`: the client's, if it is up to 128 letters, digits and `.`, `_`, `:`, `-`.
Errors are `{"error":{"message","type","param","code"}}`, all four keys always there; `param` is the path of the field,
such as `messages[0].content`. `X-Should-Retry: false` says that the same request would be refused again.

`traceparent` (W3C Trace Context; of gRPC the metadata of this name) stands in the router's log lines of the request. A
request that is traced, because its `traceparent` says so or because `tracing.sample` took it, has a span in its trace
(`tracing.endpoint`), which the header `Traceresponse` of its answer names as a traceparent does.

`X-Request-Timeout-Ms` (1 to 86400000) says by when a request for tokens must have ended, counted from its last byte;
`server.request_timeout` is its bound, and the default. Then its work ends at all workers, and the client gets 504, or
the error of a stream that has begun. Where the API is public, `/metrics` and `/load` are on a port of their own
(`server.metrics_port`, [SECURITY.md](SECURITY.md)).

| status | `code` | when |
|---|---|---|
| 400 | null | the body is not JSON |
| 400 | `invalid_type`, `invalid_value`, `missing_required_parameter` | the field at `param` is wrong; the message has the range |
| 400 | `unsupported_parameter` | the field at `param` is known and not supported |
| 400 | `context_length_exceeded` | prompt and `max_tokens` are longer than the context; `n_prompt_tokens` and `n_ctx` are told |
| 400 | `prompt_too_slow` | the template or the tokenizer took longer than `server.text_deadline` |
| 401 | `invalid_api_key` | no key, or one that is not valid (any more) |
| 403 | `insufficient_scope`, `host_not_allowed` | the key may not use this path; the `Host` header has a name that is not the server's |
| 404 | `not_found`, `model_not_found`, `previous_response_not_found` or null | no such path; no such model; the tenant has no such stored answer |
| 405, 408, 413, 415, 431 | `method_not_allowed`, `request_too_large` or null | the request's form |
| 429 | `server_overloaded`, `rate_limit_exceeded`, `too_many_connections` | the queue is full; a limit of the key is reached, or its connections are all in use. `Retry-After` tells when to try again |
| 500 | `workers_lost` or null | the server failed |
| 501 | `not_supported` | an endpoint of other servers |
| 503 | `model_loading`, `no_workers`, `shutting_down`, `timeout` or null | nobody can serve now; null: too many connections, or bytes on their way |
| 504 | `timeout` | the request was not done by its deadline: `X-Request-Timeout-Ms`, or `server.request_timeout` |
| 505 | null | another version than HTTP/1.0 and 1.1, such as HTTP/2 without TLS |

In a stream an error is an event `data: {"error":{...}}`, and `data: [DONE]` ends it.
In a stream of `/v1/responses` it is the event `response.failed`; these streams have no `[DONE]`.

## Stored answers

Responses are stored unless `store` is false, chat completions if it is true, up to `server.max_stored_answers` and
`server.max_stored_bytes`, in the memory of the router: the ones that were used longest ago go first. One that is larger
than a fourth of these bytes is not kept. With keys an answer is its tenant's: others do not find it. A response has its
whole conversation, so it can be gone on with when those before it are gone. A response that failed, was cancelled or
lost its client is stored with what there is. Cancelling
ends the stream of a running response with `response.incomplete`, for there is no event of its own, and the status
`cancelled`. Lists take `limit` (1 to 100), `order` (`asc`, `desc`) and `after`; that of chat completions also `model`
and `metadata[NAME]`.

Answers of `/v1/messages` and the paths below it have the id as header `Request-Id` too. Their errors, in streams too,
are `{"type":"error","error":{"type","message"},"request_id"}`.

## Fields

`null` stands for an absent field. Names that stand nowhere on this page are ignored.
)";

}  // namespace

std::string ApiReference() {
  std::string page = kHead;
  for (const Route& route : RouteTable()) {
    absl::StrAppend(&page, "| ", std::string(route.method), " | `", std::string(route.path), "` | ",
                    std::string(NameOf(route.scope)), " | ",
                    route.answer == nullptr ? "501 `not_supported`" : std::string(route.summary),
                    " |\n");
  }
  absl::StrAppend(&page, kErrors, FieldReference());
  return page;
}

}  // namespace baton
