// Streams that run at the same time, and checks on them: the text stays the same whatever happens
// to the cluster, and the longest pause is known.
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
  std::string text;  // text of the chunks' choices; for a failed request the error
  // The max time between two chunks, or from a request to its first chunk.
  absl::Duration longest_gap;
  // Number of answers. All must be the same; a different one is added to `text`.
  int answers = 0;
};

// Returns the body of a streamed greedy completion that runs to max_tokens.
std::string StreamBody(const std::string& prompt, int max_tokens);

// Runs kCrowd streams of kCrowdTokens to their ends. when_all_run is called once, on the thread of
// a stream, when each of them has brought 20 tokens. A stream that ends before that, or before
// over() holds, is requested again (for half a minute at most), so that streams run while
// when_all_run takes effect.
std::vector<CrowdStream> RunCrowd(
    const HttpClient& client, const std::function<void()>& when_all_run,
    const std::function<bool()>& over = [] { return true; });

// Returns the number of answers of all streams together.
int AnswersOf(const std::vector<CrowdStream>& streams);

// Returns the value of a metric line "name{labels} value" or "name value"; sums over label sets, or
// over those with `label` if it is given; -1: absent.
double MetricSum(const HttpClient& client, const std::string& name, const std::string& label = "");

// Waits for the condition. False: it did not hold within `limit`.
bool WaitUntil(absl::Duration limit, const std::function<bool()>& condition);

}  // namespace baton
