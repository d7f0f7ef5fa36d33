#include "server/api/endpoints/stored_input.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_document.h"
#include "server/api/json_writer.h"

namespace baton {

// The body is a line for the query, a line for the id, and the input.
void AnswerStoredInput(ApiFront& front, ApiCall call, const StoredAnswer& answer,
                       ApiFront::TextWork work) {
  call.request.body = absl::StrCat(call.request.query, "\n", answer.id, "\n",
                                   answer.input.empty() ? "[]" : answer.input);
  front.AnswerText(std::move(call), work);
}

std::optional<StoredInput> ReadStoredInput(std::string_view body) {
  const size_t query_end = body.find('\n'), id_end = body.find('\n', query_end + 1);
  auto input = ParseOwnJson(body.substr(id_end + 1));
  if (!input.ok()) return std::nullopt;
  return StoredInput{.query = body.substr(0, query_end),
                     .id = body.substr(query_end + 1, id_end - query_end - 1),
                     .input = *std::move(input)};
}

void ReplyDeleted(ApiFront& front, const ApiCall& call, std::string_view object) {
  ReplyJson(front, call, JsonObject([&](JsonWriter& json) {
              json.Field("id", call.argument);
              json.Field("object", object);
              json.Field("deleted", true);
            }));
}

}  // namespace baton
