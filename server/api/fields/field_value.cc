#include "server/api/fields/field_value.h"

#include <boost/json.hpp>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/api/json_document.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr size_t kShownBytes = 60;

// An integer, or a double that is one exactly.
std::optional<int64_t> Integer(const json::value& value) {
  json::error_code ec;
  const auto number = value.is_number() ? value.to_number<int64_t>(ec) : 0;
  if (!value.is_number() || ec) return std::nullopt;
  return number;
}

}  // namespace

std::string Shown(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() > kShownBytes)
    text = absl::StrCat(std::string(BeginningOf(text, kShownBytes - 3)), "...");
  return text;
}

ApiError WrongType(const std::string& path, const json::value& value, const std::string& wanted) {
  return InvalidField(path, absl::StrCat(path, " must be ", wanted, "; got ", Shown(value), "."),
                      "invalid_type");
}

ApiError WrongValue(const std::string& path, const json::value& value, const std::string& wanted) {
  return InvalidField(path, absl::StrCat(path, " must be ", wanted, "; got ", Shown(value), "."));
}

ApiError Missing(const std::string& path) {
  return InvalidField(path, path + " is needed.", "missing_required_parameter");
}

std::string TextOf(const json::string& text) { return {text.data(), text.size()}; }

FieldProblem ReadBool(const std::string& path, const json::value& value, bool* out) {
  if (!value.is_bool()) return WrongType(path, value, "true or false");
  *out = value.get_bool();
  return std::nullopt;
}

FieldProblem ReadInt(const std::string& path, const json::value& value, int64_t min, int64_t max,
                     int64_t* out) {
  if (!value.is_number()) return WrongType(path, value, "an integer");
  const auto number = Integer(value);
  if (!number || *number < min || *number > max)
    return WrongValue(path, value, absl::StrCat("an integer from ", min, " to ", max));
  *out = *number;
  return std::nullopt;
}

FieldProblem ReadNumber(const std::string& path, const json::value& value, const FieldLimit& limit,
                        bool above_min, double* out) {
  if (!value.is_number()) return WrongType(path, value, "a number");
  json::error_code ec;
  const auto number = value.to_number<double>(ec);
  if (ec || !CheckLimit(limit, number).ok() || (above_min && number == limit.min)) {
    return WrongValue(path, value,
                      absl::StrFormat("a number %s %g and at most %g", above_min ? "above" : "from",
                                      limit.min, limit.max));
  }
  *out = number;
  return std::nullopt;
}

FieldProblem ReadText(const std::string& path, const json::value& value, std::string* out) {
  if (!value.is_string()) return WrongType(path, value, "a string");
  *out = TextOf(value.get_string());
  return std::nullopt;
}

FieldProblem ReadTokenIds(const std::string& path, const json::value& value,
                          std::vector<int32_t>* out) {
  const json::array* ids = value.if_array();
  if (ids == nullptr) return WrongType(path, value, "a list of token ids");
  out->reserve(ids->size());
  for (size_t i = 0; i < ids->size(); ++i) {
    const auto id = Integer((*ids)[i]);
    if (!id || !CheckLimit(RequestLimits::kTokenId, static_cast<double>(*id)).ok())
      return WrongValue(absl::StrCat(path, "[", i, "]"), (*ids)[i], "a token id");
    out->push_back(static_cast<int32_t>(*id));
  }
  return std::nullopt;
}

FieldProblem ReadDistinctIds(const std::string& path, const json::value& value,
                             const FieldLimit& limit, std::vector<int32_t>* out) {
  std::vector<int32_t> ids;
  if (auto problem = ReadTokenIds(path, value, &ids)) return problem;
  absl::flat_hash_set<int32_t> seen;
  out->clear();
  for (const int32_t id : ids)
    if (seen.insert(id).second) out->push_back(id);
  if (CheckLimit(limit, static_cast<double>(out->size())).ok()) return std::nullopt;
  return TooMany(path, static_cast<int64_t>(limit.max), "different ids", out->size());
}

FieldProblem ReadString(const std::string& path, const json::value& value, size_t max_bytes,
                        std::string* out) {
  if (auto problem = ReadText(path, value, out)) return problem;
  if (!out->empty() && out->size() <= max_bytes && out->find('\0') == std::string::npos)
    return std::nullopt;
  return InvalidField(path,
                      absl::StrCat(path, " must have 1 to ", max_bytes, " bytes and no NUL."));
}

FieldProblem ReadStrings(const std::string& path, const json::array& list, size_t max_entries,
                         size_t max_bytes, std::vector<std::string>* out) {
  if (list.size() > max_entries)
    return TooMany(path, static_cast<int64_t>(max_entries), "strings", list.size());
  out->assign(list.size(), "");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string entry = absl::StrCat(path, "[", i, "]");
    if (auto problem = ReadString(entry, list[i], max_bytes, &(*out)[i])) return problem;
  }
  return std::nullopt;
}

}  // namespace baton
