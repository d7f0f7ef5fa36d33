// One request of a load run: sends it, reads its stream, stamps each chunk. Used by every load-like
// benchmark, so that they all mean the same by TTFT and ITL.
#pragma once

#include <string>
#include <vector>

#include "bench/load/http_client.h"
#include "bench/load/load_trace.h"

namespace baton {

struct Outcome {
  bool ok = false;
  std::string error;
  std::string text;
  int n_output = 0;  // completion tokens, as the server counts them
  absl::Time sent;
  std::vector<absl::Time> chunk_times;  // arrival of chunks with choices; the first ends TTFT
  double lag_ms = 0;                    // delay of the client's own start

  double ttft_ms() const;
  double second_gap_ms() const;  // between chunks 1 and 2; -1 = there was no second
  double e2el_ms() const;
  std::vector<double> itl_ms() const;  // gaps after the second chunk
};

// Greedy, exactly max_tokens tokens (ignore_eos), streamed. on_chunk (may be empty) runs after
// each.
Outcome RunLoadRequest(const HttpClient& client, const LoadRequest& request,
                       const std::function<void(const Outcome&)>& on_chunk = nullptr);

struct Distribution {
  std::vector<double> values;  // sorted
  explicit Distribution(std::vector<double> samples);
  double mean() const;
  double percentile(double percent) const;  // linear between samples; 0 when empty
};

}  // namespace baton
