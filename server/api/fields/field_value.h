// Reading of one JSON value of a request, and the words of the error when it is not what the field
// takes: "PATH must be an integer from 1 to 8; got 9." Pure: any thread.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/request_limits.h"
#include "server/api/api_error.h"

namespace baton {

// Nothing: the value is fine.
using FieldProblem = std::optional<ApiError>;

// The value as JSON, shortened for an error message.
std::string Shown(const boost::json::value& value);
// 400 invalid_type: "PATH must be WANTED; got VALUE."
ApiError WrongType(const std::string& path, const boost::json::value& value,
                   const std::string& wanted);
// 400 invalid_value: the same words.
ApiError WrongValue(const std::string& path, const boost::json::value& value,
                    const std::string& wanted);

// 400 missing_required_parameter: "PATH is needed."
ApiError Missing(const std::string& path);

std::string TextOf(const boost::json::string& text);

// Each reads `value`, found at `path`, into *out, or says what is wrong.
FieldProblem ReadBool(const std::string& path, const boost::json::value& value, bool* out);
// Also takes a number such as 7.0.
FieldProblem ReadInt(const std::string& path, const boost::json::value& value, int64_t min,
                     int64_t max, int64_t* out);
// above_min: the min itself is not allowed.
FieldProblem ReadNumber(const std::string& path, const boost::json::value& value,
                        const FieldLimit& limit, bool above_min, double* out);
FieldProblem ReadText(const std::string& path, const boost::json::value& value, std::string* out);
// Token ids in the order given. Whether the model has them is checked later.
FieldProblem ReadTokenIds(const std::string& path, const boost::json::value& value,
                          std::vector<int32_t>* out);
// Each id once, in the order of their first places; at most limit.max of them.
FieldProblem ReadDistinctIds(const std::string& path, const boost::json::value& value,
                             const FieldLimit& limit, std::vector<int32_t>* out);

// A string with 1 to max_bytes bytes and no NUL, and a list of such strings.
FieldProblem ReadString(const std::string& path, const boost::json::value& value, size_t max_bytes,
                        std::string* out);
FieldProblem ReadStrings(const std::string& path, const boost::json::array& list,
                         size_t max_entries, size_t max_bytes, std::vector<std::string>* out);

}  // namespace baton
