// Reads the fields of one JSON object of a configuration file. The first field that is missing, of
// the wrong type or out of range is remembered as an error that names file, field, value and what
// is accepted; later reads return a default, so that a parser reads straight down and asks once.
// Used by one thread.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"

namespace baton {

// Parses the text of one JSON object. InvalidArgument: not JSON, or no object; the error names
// `origin` and, in bytes, the position.
absl::StatusOr<boost::json::object> ParseJsonObject(std::string_view text,
                                                    const std::string& origin);

class JsonFields {
 public:
  // where: named in errors. The JSON object must outlive this one.
  JsonFields(const boost::json::object& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  // The value, or null where the field is absent or null.
  const boost::json::value* Find(std::string_view field) const;
  bool Has(std::string_view field) const { return Find(field) != nullptr; }

  // True if the field is written as null, which for some fields differs from an absent one.
  bool IsNull(std::string_view field) const;

  // Integers and numbers within [min, max]; the ...Or forms return `fallback` if the field is
  // absent.
  int Int(std::string_view field, int64_t min, int64_t max);
  int IntOr(std::string_view field, int fallback, int64_t min, int64_t max);
  double Number(std::string_view field, double min, double max);
  double NumberOr(std::string_view field, double fallback, double min, double max);
  bool BoolOr(std::string_view field, bool fallback);
  std::string StringOr(std::string_view field, std::string_view fallback);
  // An integer or a list of integers; empty if absent.
  std::vector<int32_t> IntsOr(std::string_view field, int64_t min, int64_t max);
  // A list of exactly `count` numbers; after an error, `count` times `min`.
  std::vector<double> Numbers(std::string_view field, size_t count, double min, double max);

  // Remembers an error: "<where>: <field> is <value>; <wanted>".
  void Refuse(std::string_view field, std::string_view wanted);
  const absl::Status& status() const { return status_; }

 private:
  const boost::json::object& object_;
  std::string where_;
  absl::Status status_;
};

}  // namespace baton
