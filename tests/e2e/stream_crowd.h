// Some streams that run at the same time, and what a test asks of them: the same text whatever
// happens to the cluster meanwhile, and how long any of them stood still.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/load/http_client.h"

namespace baton {

inline constexpr int kCrowd = 6;
inline constexpr int kCrowdTokens = 1500;

struct CrowdStream {
  std::string text;  // its chunks' choices; of a failed request the error
  // Between two chunks, or from a request to its first.
  absl::Duration longest_gap;
  // How often it was asked for. All answers must be the same; others are added to `text`.
  int answers = 0;
};

// Body of a streamed greedy completion that runs to max_tokens.
std::string StreamBody(const std::string& prompt, int max_tokens);

// Runs kCrowd streams of kCrowdTokens to their ends. when_all_run is called once, on the thread of
// a stream, when each of them has brought 20 tokens. A stream that ends before that, or before
// over() holds, is asked for again (for half a minute at most): whatever when_all_run does finds
// streams under way, however fast they are and however long it takes to be felt.
std::vector<CrowdStream> RunCrowd(
    const HttpClient& client, const std::function<void()>& when_all_run,
    const std::function<bool()>& over = [] { return true; });

// How often the streams of a crowd were asked for, all together.
int AnswersOf(const std::vector<CrowdStream>& streams);

// Value of a metric line "name{labels} value" or "name value"; sums over label sets, if one is
// given those with this label; -1 = absent.
double MetricSum(const HttpClient& client, const std::string& name, const std::string& label = "");

// True when the condition held within `limit`.
bool WaitUntil(absl::Duration limit, const std::function<bool()>& condition);

}  // namespace baton
