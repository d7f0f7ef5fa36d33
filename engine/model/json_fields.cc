#include "engine/model/json_fields.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr size_t kShownValue = 80;  // characters of a refused value that an error repeats

std::string Shown(const boost::json::value& value) {
  std::string text = boost::json::serialize(value);
  if (text.size() > kShownValue) text = text.substr(0, kShownValue) + "...";
  return text;
}

// JSON writers of other languages may write 4096.0 or 1e6 for an integer.
std::optional<int64_t> WholeNumber(const boost::json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    const double number = value.get_double();
    if (std::abs(number) < 9e15 && number == std::floor(number))
      return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<boost::json::object> ParseJsonObject(std::string_view text,
                                                    const std::string& origin) {
  boost::system::error_code error;
  boost::json::stream_parser parser;
  const size_t used = parser.write_some(text.data(), text.size(), error);
  if (!error && used == text.size()) parser.finish(error);
  if (!error && used < text.size() &&
      text.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
    error = boost::json::error::extra_data;
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: not valid JSON near byte %d: %s", origin, used, error.message()));
  }
  boost::json::value value = parser.release();
  if (!value.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(origin, ": expected a JSON object"));
  }
  return std::move(value.get_object());
}

const boost::json::value* JsonFields::Find(std::string_view field) const {
  const boost::json::value* value =
      object_.if_contains(boost::json::string_view(field.data(), field.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool JsonFields::IsNull(std::string_view field) const {
  const boost::json::value* value =
      object_.if_contains(boost::json::string_view(field.data(), field.size()));
  return value != nullptr && value->is_null();
}

void JsonFields::Refuse(std::string_view field, std::string_view wanted) {
  if (!status_.ok()) return;
  const boost::json::value* value = Find(field);
  const std::string found = value == nullptr ? "is missing" : absl::StrCat("is ", Shown(*value));
  status_ = absl::InvalidArgumentError(
      absl::StrCat(where_, ": ", std::string(field), " ", found, "; ", std::string(wanted)));
}

int JsonFields::Int(std::string_view field, int64_t min, int64_t max) {
  const boost::json::value* value = Find(field);
  const std::optional<int64_t> number = value == nullptr ? std::nullopt : WholeNumber(*value);
  if (!number || *number < min || *number > max) {
    Refuse(field, absl::StrFormat("it must be an integer from %d to %d", min, max));
    return static_cast<int>(min);
  }
  return static_cast<int>(*number);
}

int JsonFields::IntOr(std::string_view field, int fallback, int64_t min, int64_t max) {
  return Has(field) ? Int(field, min, max) : fallback;
}

double JsonFields::Number(std::string_view field, double min, double max) {
  const boost::json::value* value = Find(field);
  const bool is_number = value != nullptr && value->is_number();
  const double number = is_number ? value->to_number<double>() : min;
  // The condition is written so that NaN fails.
  if (!is_number || !(number >= min && number <= max)) {
    Refuse(field, absl::StrFormat("it must be a number from %g to %g", min, max));
    return min;
  }
  return number;
}

double JsonFields::NumberOr(std::string_view field, double fallback, double min, double max) {
  return Has(field) ? Number(field, min, max) : fallback;
}

bool JsonFields::BoolOr(std::string_view field, bool fallback) {
  const boost::json::value* value = Find(field);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) {
    Refuse(field, "it must be true or false");
    return fallback;
  }
  return value->get_bool();
}

std::string JsonFields::StringOr(std::string_view field, std::string_view fallback) {
  const boost::json::value* value = Find(field);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    Refuse(field, "it must be a string");
    return std::string(fallback);
  }
  const boost::json::string& text = value->get_string();
  return std::string(text.data(), text.size());
}

std::vector<int32_t> JsonFields::IntsOr(std::string_view field, int64_t min, int64_t max) {
  std::vector<int32_t> numbers;
  const boost::json::value* value = Find(field);
  if (value == nullptr) return numbers;
  const auto append = [&](const boost::json::value& item) {
    const std::optional<int64_t> number = WholeNumber(item);
    if (!number || *number < min || *number > max) {
      Refuse(field,
             absl::StrFormat("it must be an integer from %d to %d, or a list of such", min, max));
    } else {
      numbers.push_back(static_cast<int32_t>(*number));
    }
  };
  if (value->is_array()) {
    for (const boost::json::value& item : value->get_array()) append(item);
  } else {
    append(*value);
  }
  return numbers;
}

std::vector<double> JsonFields::Numbers(std::string_view field, size_t count, double min,
                                        double max) {
  const boost::json::value* value = Find(field);
  std::vector<double> numbers;
  if (value != nullptr && value->is_array()) {
    for (const boost::json::value& item : value->get_array()) {
      const double number = item.is_number() ? item.to_number<double>() : min - 1;
      if (number >= min && number <= max) numbers.push_back(number);
    }
    if (numbers.size() == count && value->get_array().size() == count) return numbers;
  }
  Refuse(field, absl::StrFormat("it must be a list of %d numbers from %g to %g", count, min, max));
  return std::vector<double>(count, min);
}

}  // namespace baton
