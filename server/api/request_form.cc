#include "server/api/request_form.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/api/json_document.h"
#include "server/api/request_deadlines.h"

namespace baton {

std::optional<ApiError> CheckForm(const FoundRoute& found, const HttpRequest& request) {
  if (request.method == "OPTIONS") return std::nullopt;
  if (found.methods.empty()) {
    return HttpError(404,
                     absl::StrCat("There is no endpoint ", ShortenedName(request.method), " ",
                                  ShortenedName(request.path),
                                  "; paths of the API begin with /v1/, as POST /v1/completions."),
                     "not_found");
  }
  if (found.route == nullptr) {
    return HttpError(405, absl::StrCat("This path takes ", absl::StrJoin(found.methods, ", "), "."),
                     "method_not_allowed");
  }
  if (found.route->answer == nullptr) {
    return HttpError(501, absl::StrCat(request.path, " is not supported by this server."),
                     "not_supported");
  }
  if (found.route->method != "POST") return std::nullopt;
  if (!request.timeout.empty() && !RequestTimeout(request.timeout)) {
    return InvalidField(
        kTimeoutHeader,
        absl::StrCat(kTimeoutHeader, " must be whole milliseconds from 1 to 86400000; got \"",
                     ShortenedName(request.timeout), "\"."));
  }
  if (!request.content_encoding.empty() &&
      !absl::EqualsIgnoreCase(request.content_encoding, "identity")) {
    return HttpError(415, "Content-Encoding is not supported; send the body as it is.");
  }
  if (!request.content_type.empty() &&
      !absl::StartsWithIgnoreCase(request.content_type, "application/json")) {
    return HttpError(415, "Send the body with Content-Type: application/json.");
  }
  return std::nullopt;
}

}  // namespace baton
