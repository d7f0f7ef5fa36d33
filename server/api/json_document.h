// Strict reading of a client's JSON with Boost.JSON: what it is lenient about is refused here
// (duplicate keys, numbers that are not finite), and depth and number of keys are bounded.
// Pure: any thread.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "common/status.h"

namespace baton {

// InvalidArgument: what is wrong and at which byte, as a sentence for the client.
absl::StatusOr<boost::json::value> ParseJson(std::string_view text);

}  // namespace baton
