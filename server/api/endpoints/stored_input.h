// The endpoints of stored responses and of stored chats share: the list of what an answer was asked
// with, which a text thread pages, and the reply to a removal.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/api_front.h"

namespace baton {

// Replies with what `work` makes of the query and the input of a stored answer; `work` reads them
// by ReadStoredInput. Front thread.
void AnswerStoredInput(ApiFront& front, ApiCall call, const StoredAnswer& answer,
                       ApiFront::TextWork work);

struct StoredInput {
  std::string_view query;  // of the call
  std::string_view id;     // of the answer
  boost::json::value input;
};
// Reads the body that AnswerStoredInput gives to its work. Nothing: the input is not JSON, which
// the store never holds. Any thread.
std::optional<StoredInput> ReadStoredInput(std::string_view body);

// {"id":ID,"object":OBJECT,"deleted":true}. Front thread.
void ReplyDeleted(ApiFront& front, const ApiCall& call, std::string_view object);

}  // namespace baton
