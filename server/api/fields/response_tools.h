// Tools and tool_choice of /v1/responses as those of the chat (message_parser.h). A custom tool,
// whose input is a text, is a function with one argument (response_item.h). Pure: any thread.
#pragma once

#include <string>

#include "server/api/api_request.h"
#include "server/api/fields/field_value.h"

namespace baton {

FieldProblem ReadResponseTools(const std::string& path, const boost::json::value& value,
                               ApiRequest* request);
// After the tools.
FieldProblem ReadResponseToolChoice(const std::string& path, const boost::json::value& value,
                                    ApiRequest* request);

}  // namespace baton
