#include "server/api/reply_headers.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/ids.h"
#include "server/api/messages_answer.h"

namespace baton {
namespace {

constexpr size_t kMaxRequestId = 128;

// Anthropic's API has its own errors, and its own name for X-Request-Id.
bool IsAnthropic(std::string_view path) { return path.starts_with("/v1/messages"); }

// id: the request's. cors_origin: empty: none.
HttpReply WithId(HttpReply reply, const std::string& path, const std::string& id,
                 const std::string& cors_origin) {
  reply.headers.emplace_back("X-Request-Id", id);
  if (IsAnthropic(path)) reply.headers.emplace_back("Request-Id", id);
  if (RetryCannotHelp(reply.status)) reply.headers.emplace_back("X-Should-Retry", "false");
  // The value is the same for all origins, so it needs none of the request: errors of requests
  // whose header could not be read have it too.
  if (!cors_origin.empty()) {
    reply.headers.emplace_back("Access-Control-Allow-Origin", cors_origin);
    reply.headers.emplace_back("Access-Control-Expose-Headers",
                               IsAnthropic(path) ? "X-Request-Id, Request-Id" : "X-Request-Id");
  }
  return reply;
}

}  // namespace

std::string RequestIdText(const std::string& given) {
  const bool plain = !given.empty() && given.size() <= kMaxRequestId &&
                     std::all_of(given.begin(), given.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '.' || c == '_' || c == ':' || c == '-';
                     });
  return plain ? given : absl::StrFormat("%016x", RandomId());
}

HttpReply (*RefusalAt(std::string_view path))(const ApiError&) {
  return IsAnthropic(path) ? AnthropicErrorReply : ErrorReply;
}

HttpReply Decorated(HttpReply reply, const HttpRequest& request, const std::string& cors_origin) {
  reply = WithId(std::move(reply), request.path, request.request_id, cors_origin);
  if (std::string own = request.trace.response(); !own.empty())
    reply.headers.emplace_back("Traceresponse", std::move(own));
  return reply;
}

HttpReply EarlyRefusal(const HttpRequest& request, ApiError error, const std::string& cors_origin) {
  error.request_id = RequestIdText(request.request_id);
  return WithId(RefusalAt(request.path)(error), request.path, error.request_id, cors_origin);
}

// Browsers do not take * for Authorization: the headers they ask for are named.
HttpReply Preflight(const HttpRequest& request, const std::string& cors_origin) {
  HttpReply reply;
  reply.content_type.clear();
  if (!cors_origin.empty()) {
    const std::string& asked = request.asked_headers;
    reply.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                     {"Access-Control-Allow-Headers", asked.empty() ? "*, Authorization" : asked},
                     {"Access-Control-Max-Age", "600"},
                     {"Vary", "Access-Control-Request-Headers"}};
  }
  return reply;
}

}  // namespace baton
