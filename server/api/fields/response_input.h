// The input of /v1/responses as messages of the chat (message_parser.h), so that templates see one
// form. Pure: any thread.
#pragma once

#include <string>

#include "server/api/api_request.h"
#include "server/api/fields/field_value.h"

namespace baton {

// A text, or a list of items: messages, reasoning, calls and their outputs. Sets
// request->response.conversation. Other items, and parts that are no text, are refused by type.
FieldProblem ReadResponseInput(const std::string& path, const boost::json::value& value,
                               ApiRequest* request);

}  // namespace baton
