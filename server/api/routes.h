// Requests to endpoints: a row says which function answers a method at a path. The table of all
// rows is endpoints/route_table.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/scope.h"
#include "server/api/api_error.h"
#include "server/http/exchange_writer.h"

namespace baton {

class ApiFront;

// A request for an endpoint, whole.
struct ApiCall {
  ExchangeId exchange = 0;
  ExchangeWriter* writer = nullptr;                    // takes the answer
  HttpReply (*refusal)(const ApiError&) = ErrorReply;  // makes an error in the caller's API
  std::string_view label{};                            // of refusals, in metrics
  HttpRequest request{};   // request_id: the client's if it is plain, else made by ApiFront
  bool admitted = false;   // by its header, before its body came
  std::string argument{};  // what stands for the * or {id} of the route's path

  std::string tenant() const;  // of the key; empty: there are no keys
};

struct Route {
  std::string_view method;  // GET: HEAD too
  // A * at its end stands for any rest, {id} for a part without a slash.
  std::string_view path;
  Scope scope;  // that a key must have, where there are keys
  // Replies through the front, now or later. Front thread. Null: the path is known from other
  // servers and answered 501 not_supported before its body is read.
  void (*answer)(ApiFront& front, ApiCall call);
  std::string_view summary{};  // of the answer, for the description of the API
  std::string_view label{};    // of its requests in metrics; empty: that of all such rows
};

struct FoundRoute {
  const Route* route = nullptr;      // null: no row has both the path and the method
  std::vector<std::string> methods;  // of all rows with the path; empty: nothing is there
  std::string argument;
};

// The first row of `routes` with both. The rows must outlive what is found.
FoundRoute FindRoute(std::span<const Route> routes, std::string_view method, std::string_view path);

// The label of a path in metrics, of which there are few: a row's of POST, "other" at other paths
// of rows, "unknown" where there is none.
std::string_view RouteLabel(std::span<const Route> routes, std::string_view path);

}  // namespace baton
