// Pages of lists, as OpenAI's API has them: {"object":"list","data":[...],"first_id","last_id",
// "has_more"}, of entries with ids, by limit, order and after in the query. Pure: any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/api/api_error.h"

namespace baton {

// Names and values of a query, decoded, in its order.
std::vector<std::pair<std::string, std::string>> QueryPairs(std::string_view query);
// The first value of a name. Nothing: not there.
std::optional<std::string> QueryValue(std::string_view query, std::string_view name);

// Returns the page, or what is wrong in the query: limit (1 to 100), order (asc, desc), after (an
// id). order: of a query without one. `ids` of all entries, in ascending order; json_of: the n-th
// entry, called for those of the page.
std::variant<std::string, ApiError> ListedPage(std::string_view query, std::string_view order,
                                               const std::vector<std::string>& ids,
                                               const std::function<std::string(size_t)>& json_of);

}  // namespace baton
