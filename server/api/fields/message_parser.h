// Messages, tools and tool_choice of a chat, checked and made ready for templates. Pure: any
// thread.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "server/api/api_request.h"
#include "server/api/fields/field_value.h"

namespace baton {

// request->messages and messages_in_parts: "developer" becomes "system", arguments of tool calls
// (a JSON string) become the object that templates expect, text parts are joined by line ends.
FieldProblem ParseMessages(const std::string& path, const boost::json::value& value,
                           ApiRequest* request);
// request->tools and callable_tools: functions with a name each.
FieldProblem ParseTools(const std::string& path, const boost::json::value& value,
                        ApiRequest* request);
// documents: a list of objects.
FieldProblem ParseDocuments(const std::string& path, const boost::json::value& value,
                            ApiRequest* request);
// Adds a variable of the template to those of chat_template_kwargs, or takes the place of one.
FieldProblem SetTemplateVariable(const std::string& name, const boost::json::value& value,
                                 ApiRequest* request);
// tool_choice beside the tools of the same request, once both are parsed. "none" drops the tools.
FieldProblem CheckToolChoice(const boost::json::object& fields, ApiRequest* request);

}  // namespace baton
