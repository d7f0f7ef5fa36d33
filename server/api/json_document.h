// Strict reading of a client's JSON with Boost.JSON: what it is lenient about is refused here
// (duplicate keys, numbers that are not finite), and depth and number of keys are bounded.
// Pure: any thread.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "common/status.h"

namespace baton {

// InvalidArgument: what is wrong and at which byte, as a sentence for the client that begins with
// `what`. Time is linear in the text.
absl::StatusOr<boost::json::value> ParseJson(std::string_view text,
                                             std::string_view what = "The request body");

// Reads what was made here of values that ParseJson returned: it may be deeper and have more keys
// than one of them. InvalidArgument: it is not such a text.
absl::StatusOr<boost::json::value> ParseOwnJson(std::string_view text);

// The beginning of `text`, at most so many bytes of it, not cut inside a character: for messages
// that show what a client sent.
std::string_view BeginningOf(std::string_view text, size_t max_bytes);
// A name that a client sent, of any length: cut for a message, with dots where it is.
std::string ShortenedName(std::string_view name);

}  // namespace baton
