// Parts that every answer of the API has, whatever it is: the id of its request, the shape of its
// path's errors, and the headers that browsers ask for. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

#include "server/api/api_error.h"
#include "server/http/http_message.h"

namespace baton {

// The client's id if it may stand in headers and logs: plain, and not long. Else one of our own.
std::string RequestIdText(const std::string& given);

// Makes an error in the shape of the path's API.
HttpReply (*RefusalAt(std::string_view path))(const ApiError& error);

// With the headers that every answer has. request: its id is plain. cors_origin: empty: none.
HttpReply Decorated(HttpReply reply, const HttpRequest& request, const std::string& cors_origin);

// Before the request is whole: its id need not be plain yet.
HttpReply EarlyRefusal(const HttpRequest& request, ApiError error, const std::string& cors_origin);

// The answer to OPTIONS.
HttpReply Preflight(const HttpRequest& request, const std::string& cors_origin);

}  // namespace baton
