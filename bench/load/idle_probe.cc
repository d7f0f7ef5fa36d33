#include "bench/load/idle_probe.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "absl/strings/str_format.h"

namespace baton {

std::vector<int> IdleLengths(const IdleProbeOptions& options) {
  std::vector<int> lengths;
  const double low = std::max(1, options.min_prompt), high = std::max(1, options.max_prompt);
  const int n = std::max(2, options.n_lengths);
  for (int i = 0; i < n; ++i) {
    const double share = static_cast<double>(i) / (n - 1);
    const int length = static_cast<int>(std::lround(low * std::pow(high / low, share)));
    if (lengths.empty() || length > lengths.back()) lengths.push_back(length);
  }
  return lengths;
}

absl::StatusOr<IdleFigures> MeasureIdle(const HttpClient& client, const IdleProbeOptions& options) {
  IdleFigures figures;
  std::vector<double> gaps;
  for (const int length : IdleLengths(options)) {
    const std::vector<LoadRequest> requests =
        MakeSynthetic({.n_requests = options.n_samples,
                       .prompt_tokens = length,
                       .output_tokens = options.output_tokens,
                       .request_rate = 0,
                       .vocab = options.vocab,
                       .seed = options.seed + static_cast<uint64_t>(figures.ttft.size())});
    std::vector<double> ttfts;
    for (const LoadRequest& request : requests) {
      const Outcome out = RunLoadRequest(client, request);
      if (!out.ok) return absl::UnavailableError("idle request failed: " + out.error);
      if (out.n_cached > 0) {
        return absl::FailedPreconditionError(absl::StrFormat(
            "%d of %d tokens of an idle prompt were cached; use another --seed, or --idle-file",
            out.n_cached, length));
      }
      ttfts.push_back(out.ttft_ms());
      for (const double gap : out.gaps_ms()) gaps.push_back(gap);
    }
    figures.ttft.push_back({length, Distribution(ttfts).percentile(50)});
  }
  figures.step_ms = Distribution(gaps).percentile(50);
  return figures;
}

std::string IdleJson(const IdleFigures& figures) {
  boost::json::array ttft;
  for (const IdleTtft& point : figures.ttft) {
    ttft.push_back(boost::json::array{point.prompt_tokens, point.ttft_ms});
  }
  return boost::json::serialize(
      boost::json::object{{"step_ms", figures.step_ms}, {"ttft_ms", std::move(ttft)}});
}

absl::StatusOr<IdleFigures> ParseIdleJson(std::string_view json) {
  IdleFigures figures;
  try {  // Boost.JSON's checked accessors throw
    const boost::json::value value =
        boost::json::parse(boost::json::string_view(json.data(), json.size()));
    figures.step_ms = value.at("step_ms").to_number<double>();
    for (const boost::json::value& point : value.at("ttft_ms").as_array()) {
      figures.ttft.push_back({point.at(0).to_number<int>(), point.at(1).to_number<double>()});
    }
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "no idle figures {\"step_ms\": 1.5, \"ttft_ms\": [[16, 4.0], ...]}: %s", error.what()));
  }
  const bool ascends = std::is_sorted(
      figures.ttft.begin(), figures.ttft.end(),
      [](const IdleTtft& a, const IdleTtft& b) { return a.prompt_tokens <= b.prompt_tokens; });
  if (figures.ttft.empty() || !ascends) {
    return absl::InvalidArgumentError("ttft_ms has no lengths, or they do not ascend");
  }
  return figures;
}

}  // namespace baton
