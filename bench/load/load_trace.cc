#include "bench/load/load_trace.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <fstream>
#include <random>

#include "absl/strings/str_format.h"
#include "common/unit_interval.h"

namespace baton {
namespace {

constexpr int kTraceBlockTokens = 512;  // tokens per hash id of the Mooncake trace
// Lower ids are special tokens in the models of the replays, so prompts do not use them.
constexpr int kFirstPlainToken = 16;

// SplitMix64 finalizer: spreads (text, index) over the vocabulary.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

int Scaled(int64_t length, double scale) {
  return static_cast<int>(std::max(1.0, std::round(static_cast<double>(length) * scale)));
}

// Parses one line of the trace. Scaling keeps the shared prefixes because blocks shrink with it.
LoadRequest ToRequest(const boost::json::object& line, const TraceOptions& options, int number) {
  LoadRequest request;
  const uint64_t random = Mix(Mix(options.seed) + static_cast<uint64_t>(number));
  const double later = options.spread_s * InUnitInterval(random);
  request.start_s =
      (line.at("timestamp").to_number<double>() / 1000.0 + later) * options.time_scale;
  request.max_tokens = Scaled(line.at("output_length").to_number<int64_t>(), options.length_scale);
  request.max_tokens = std::min(request.max_tokens, options.max_context / 2);
  const int n_prompt =
      std::min(Scaled(line.at("input_length").to_number<int64_t>(), options.length_scale),
               options.max_context - request.max_tokens);
  const int block_tokens = std::max(1, Scaled(kTraceBlockTokens, options.length_scale));
  const boost::json::array& ids = line.at("hash_ids").as_array();
  for (int i = 0; i < n_prompt; ++i) {
    const size_t block = static_cast<size_t>(i / block_tokens);
    // The last id of a request covers a partial block, whose tokens are the request's alone.
    const bool shared = block + 1 < ids.size();
    const uint64_t id = shared ? ids[block].to_number<uint64_t>()
                               : (uint64_t{1} << 40) + static_cast<uint64_t>(number);
    request.prompt.push_back(
        MadeUpToken(id ^ (options.seed << 48),
                    static_cast<uint64_t>(i % block_tokens) + (shared ? 0 : block), options.vocab));
  }
  return request;
}

}  // namespace

int32_t MadeUpToken(uint64_t text, uint64_t index, int vocab) {
  const uint64_t range = static_cast<uint64_t>(std::max(vocab - kFirstPlainToken, 1));
  return static_cast<int32_t>(kFirstPlainToken + Mix(Mix(text) + index) % range);
}

absl::StatusOr<std::vector<LoadRequest>> ReadTrace(const TraceOptions& options) {
  std::ifstream file(options.path);
  if (!file) return absl::NotFoundError("trace " + options.path + ": cannot be opened");
  std::vector<LoadRequest> requests;
  std::string line;
  while (static_cast<int>(requests.size()) < options.n_requests && std::getline(file, line)) {
    const int number = static_cast<int>(requests.size());
    try {  // Boost.JSON's checked accessors throw; only this function parses trace files
      requests.push_back(ToRequest(boost::json::parse(line).as_object(), options, number));
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(
          absl::StrFormat("trace %s line %d: %s", options.path, number + 1, error.what()));
    }
  }
  if (requests.empty()) return absl::InvalidArgumentError("trace " + options.path + " is empty");
  std::stable_sort(
      requests.begin(), requests.end(),
      [](const LoadRequest& a, const LoadRequest& b) { return a.start_s < b.start_s; });
  return requests;
}

std::vector<LoadRequest> MakeSynthetic(const SyntheticOptions& options) {
  std::mt19937_64 random(options.seed);
  std::vector<LoadRequest> requests(static_cast<size_t>(options.n_requests));
  double start_s = 0;
  uint64_t number = 0;
  for (LoadRequest& request : requests) {
    request.start_s = start_s;
    request.max_tokens = options.output_tokens;
    ++number;
    for (int i = 0; i < options.prompt_tokens; ++i) {
      request.prompt.push_back(
          MadeUpToken((options.seed << 48) + number, static_cast<uint64_t>(i), options.vocab));
    }
    if (options.request_rate > 0) {
      start_s += std::exponential_distribution<double>(options.request_rate)(random);
    }
  }
  return requests;
}

}  // namespace baton
