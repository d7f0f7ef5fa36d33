// Sends requests at their times (open loop) and returns what became of each.
#pragma once

#include <vector>

#include "bench/load/load_client.h"

namespace baton {

struct ReplayOptions {
  int max_concurrency = 256;
  double seconds = 0;  // the run ends then; 0: with the last answer
};

// Outcomes in the order of the requests, which ascend in start_s. Beyond max_concurrency a request
// starts late and its lag is told. One that was due and could not start until the end is cut.
std::vector<Outcome> Replay(const HttpUrl& url, const std::vector<LoadRequest>& requests,
                            const ReplayOptions& options);

}  // namespace baton
