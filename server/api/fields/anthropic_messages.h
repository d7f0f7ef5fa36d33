// Messages, system prompt and tools of Anthropic's API as those of the chat (message_parser.h), so
// that templates see one form. Pure: any thread.
#pragma once

#include <string>

#include "server/api/api_request.h"
#include "server/api/fields/field_value.h"

namespace baton {

// Blocks: text, tool_use (a call), tool_result (a message of its own), thinking (reasoning of the
// turn). Images and documents are refused by their type.
FieldProblem ReadAnthropicMessages(const std::string& path, const boost::json::value& value,
                                   ApiRequest* request);
// A text or text blocks, before the messages, which are read already. Blocks that begin with
// "x-anthropic-billing-header" are left out: they differ from request to request, and prefixes
// should not.
FieldProblem ReadSystemPrompt(const std::string& path, const boost::json::value& value,
                              ApiRequest* request);
FieldProblem ReadAnthropicTools(const std::string& path, const boost::json::value& value,
                                ApiRequest* request);
// After the tools.
FieldProblem ReadAnthropicToolChoice(const std::string& path, const boost::json::value& value,
                                     ApiRequest* request);

}  // namespace baton
