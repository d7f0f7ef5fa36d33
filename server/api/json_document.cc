#include "server/api/json_document.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxKeys = 200000;
// The largest depth of a value inside another one: arguments of a call in a list of messages.
constexpr size_t kMaxOwnDepth = 2 * kMaxDepth;

// Receives the parser's events, builds the value and refuses what it must not hold.
struct StrictHandler {
  static constexpr size_t max_object_size = json::object::max_size();
  static constexpr size_t max_array_size = json::array::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  static constexpr size_t max_string_size = json::string::max_size();

  json::value_stack stack;
  std::vector<absl::flat_hash_set<std::string>> keys;  // of the open objects
  std::string key;
  size_t n_keys = 0;
  std::string problem;

  bool Refuse(json::error_code& ec, std::string what) {
    problem = std::move(what);
    ec = json::error::syntax;
    return false;
  }

  bool on_document_begin(json::error_code&) {
    stack.reset();
    return true;
  }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    keys.emplace_back();
    return true;
  }
  bool on_object_end(size_t n, json::error_code&) {
    keys.pop_back();
    stack.push_object(n);
    return true;
  }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(size_t n, json::error_code&) {
    stack.push_array(n);
    return true;
  }
  bool on_key_part(json::string_view part, size_t, json::error_code&) {
    key.append(part.data(), part.size());
    stack.push_chars(part);
    return true;
  }
  bool on_key(json::string_view part, size_t, json::error_code& ec) {
    key.append(part.data(), part.size());
    stack.push_key(part);
    if (++n_keys > kMaxKeys) return Refuse(ec, absl::StrCat("more than ", kMaxKeys, " keys"));
    if (!keys.back().insert(key).second) {
      return Refuse(
          ec, absl::StrCat("the key \"", std::string(BeginningOf(key, 80)), "\" is given twice"));
    }
    key.clear();
    return true;
  }
  bool on_string_part(json::string_view part, size_t, json::error_code&) {
    stack.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, size_t, json::error_code&) {
    stack.push_string(part);
    return true;
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t number, json::string_view, json::error_code&) {
    stack.push_int64(number);
    return true;
  }
  bool on_uint64(std::uint64_t number, json::string_view, json::error_code&) {
    stack.push_uint64(number);
    return true;
  }
  bool on_double(double number, json::string_view, json::error_code& ec) {
    if (!std::isfinite(number)) return Refuse(ec, "a number is too large");
    stack.push_double(number);
    return true;
  }
  bool on_bool(bool value, json::error_code&) {
    stack.push_bool(value);
    return true;
  }
  bool on_null(json::error_code&) {
    stack.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

}  // namespace

absl::StatusOr<json::value> ParseJson(std::string_view text, std::string_view what) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  try {  // allocation is the only thing that throws
    json::basic_parser<StrictHandler> parser(options);
    json::error_code ec;
    const size_t used = parser.write_some(false, text.data(), text.size(), ec);
    if (!ec && used < text.size()) ec = json::error::extra_data;
    if (ec) {
      const std::string& problem = parser.handler().problem;
      return absl::InvalidArgumentError(absl::StrCat(
          std::string(what), " is not valid JSON: ",
          problem.empty() ? std::string(ec.message()) : problem, " (at byte ", used, ")."));
    }
    return parser.handler().stack.release();
  } catch (const std::exception&) {
    return absl::ResourceExhaustedError(absl::StrCat(std::string(what), " is too large to parse."));
  }
}

absl::StatusOr<json::value> ParseOwnJson(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxOwnDepth;
  try {  // allocation is the only thing that throws
    json::error_code ec;
    json::value value = json::parse({text.data(), text.size()}, ec, {}, options);
    if (ec) return absl::InvalidArgumentError(std::string(ec.message()));
    return value;
  } catch (const std::exception&) {
    return absl::ResourceExhaustedError("too large to parse");
  }
}

std::string_view BeginningOf(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  return text.substr(0, max_bytes);
}

std::string ShortenedName(std::string_view name) {
  constexpr size_t kMaxShown = 100;
  if (name.size() <= kMaxShown) return std::string(name);
  return absl::StrCat(std::string(BeginningOf(name, kMaxShown)), "...");
}

}  // namespace baton
