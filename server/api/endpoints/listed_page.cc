#include "server/api/endpoints/listed_page.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/api/json_writer.h"

namespace baton {
namespace {

constexpr size_t kDefaultLimit = 20, kMaxLimit = 100;

// The parser has checked that two digits follow each %.
std::string Decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      decoded += absl::HexStringToBytes(std::string(text.substr(i + 1, 2)));
      i += 2;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> QueryPairs(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto part : absl::StrSplit(absl::string_view(query.data(), query.size()), '&')) {
    const std::string_view text(part.data(), part.size());
    const size_t equals = text.find('=');
    const bool has_value = equals != std::string_view::npos;
    pairs.emplace_back(Decoded(text.substr(0, equals)),
                       has_value ? Decoded(text.substr(equals + 1)) : "");
  }
  return pairs;
}

std::optional<std::string> QueryValue(std::string_view query, std::string_view name) {
  for (auto& [key, value] : QueryPairs(query))
    if (key == name) return std::move(value);
  return std::nullopt;
}

std::variant<std::string, ApiError> ListedPage(std::string_view query, std::string_view order,
                                               const std::vector<std::string>& ids,
                                               const std::function<std::string(size_t)>& json_of) {
  size_t limit = kDefaultLimit;
  if (const auto given = QueryValue(query, "limit")) {
    if (!absl::SimpleAtoi(*given, &limit) || limit < 1 || limit > kMaxLimit) {
      return InvalidField("limit", absl::StrCat("limit must be an integer from 1 to ", kMaxLimit,
                                                "; got ", *given, "."));
    }
  }
  const std::string wanted = QueryValue(query, "order").value_or(std::string(order));
  if (wanted != "asc" && wanted != "desc") {
    return InvalidField("order", absl::StrCat("order must be asc or desc; got ", wanted, "."));
  }
  std::vector<size_t> listed(ids.size());
  std::iota(listed.begin(), listed.end(), size_t{0});
  if (wanted == "desc") std::reverse(listed.begin(), listed.end());
  auto first = listed.begin();
  if (const auto after = QueryValue(query, "after")) {
    first = std::find_if(listed.begin(), listed.end(), [&](size_t n) { return ids[n] == *after; });
    if (first == listed.end()) {
      return InvalidField("after", absl::StrCat("after must be the id of an entry; got ", *after,
                                                ", which is unknown or gone."));
    }
    ++first;
  }
  const auto n_left = static_cast<size_t>(listed.end() - first);
  const auto last = first + static_cast<std::ptrdiff_t>(std::min(limit, n_left));
  return JsonObject([&](JsonWriter& json) {
    json.Field("object", "list");
    json.Array("data", [&] {
      for (auto n = first; n != last; ++n) json.Json(json_of(*n));
    });
    json.FieldOrNull("first_id", first == last ? "" : ids[*first]);
    json.FieldOrNull("last_id", first == last ? "" : ids[*(last - 1)]);
    json.Field("has_more", last != listed.end());
  });
}

}  // namespace baton
