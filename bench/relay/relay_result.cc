#include "bench/relay/relay_result.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <tuple>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

auto GroupOf(const RelayResult& result) {
  return std::tie(result.source, result.shape, result.bytes_per_second, result.ranks);
}

// Prints the schemes of one group of results from `begin` on, then a line per length. Returns the
// end of the group.
size_t PrintGroup(const std::vector<RelayResult>& results, size_t begin) {
  const RelayResult& first = results[begin];
  size_t end = begin;
  std::vector<std::string> schemes;
  while (end < results.size() && GroupOf(results[end]) == GroupOf(first)) {
    const std::string& scheme = results[end++].scheme;
    if (std::find(schemes.begin(), schemes.end(), scheme) == schemes.end()) {
      schemes.push_back(scheme);
    }
  }
  std::printf("%s: %s, %d workers, links of %.4g GB/s: seconds to the first token\n",
              first.source.c_str(), first.shape.c_str(), first.ranks, first.bytes_per_second / 1e9);
  std::printf("%-10s %8s", "", "tokens");
  for (const std::string& scheme : schemes) std::printf(" %11s", scheme.c_str());
  for (size_t i = begin; i < end;) {
    const double tokens = results[i].tokens;
    std::printf("\n%-10s %8.0f", first.source.c_str(), tokens);
    size_t column = 0;
    for (; i < end && results[i].tokens == tokens; ++i) {
      for (; schemes[column] != results[i].scheme; ++column) std::printf(" %11s", "-");
      std::printf(" %11.5g", results[i].seconds);
      ++column;
    }
  }
  std::printf("\n\n");
  return end;
}

}  // namespace

void PrintRelayTable(const std::vector<RelayResult>& results) {
  for (size_t i = 0; i < results.size();) i = PrintGroup(results, i);
}

void PrintRelayClaims(const std::vector<RelayClaim>& claims) {
  for (const RelayClaim& claim : claims) {
    std::printf("%-10s %-12s %-6s %s: %.4g, to be %s %.4g%s%s\n", claim.source.c_str(),
                claim.id.c_str(), claim.holds() ? "holds" : "FAILS", claim.what.c_str(),
                claim.value, claim.limit_is_min ? "at least" : "at most", claim.limit,
                claim.detail.empty() ? "" : "; ", claim.detail.c_str());
  }
}

void PrintRelayJson(const std::vector<RelayResult>& results,
                    const std::vector<RelayClaim>& claims) {
  boost::json::array rows, lines;
  for (const RelayResult& result : results) {
    rows.push_back({{"source", result.source},
                    {"shape", result.shape},
                    {"scheme", result.scheme},
                    {"bytes_per_second", result.bytes_per_second},
                    {"ranks", result.ranks},
                    {"tokens", result.tokens},
                    {"seconds", result.seconds},
                    {"kv_complete", result.kv_complete},
                    {"slices", boost::json::array(result.slices.begin(), result.slices.end())}});
  }
  for (const RelayClaim& claim : claims) {
    lines.push_back({{"source", claim.source},
                     {"id", claim.id},
                     {"what", claim.what},
                     {"value", claim.value},
                     {"at_least", claim.limit_is_min},
                     {"limit", claim.limit},
                     {"holds", claim.holds()},
                     {"detail", claim.detail}});
  }
  const boost::json::object object{{"results", std::move(rows)}, {"claims", std::move(lines)}};
  std::printf("%s\n", boost::json::serialize(object).c_str());
}

}  // namespace baton
