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
  bool cut = false;  // the run's time was up before the answer's end; not ok, but no failure
  std::string error;
  std::string text;
  std::vector<int32_t> tokens;  // of the answer, if the request asked for them
  int n_prompt = 0;
  int n_cached = -1;  // prompt tokens the server had KV of, as it says; -1: it does not say
  int n_output = 0;   // completion tokens, as the server counts them
  absl::Time sent, ended;
  std::vector<absl::Time> chunk_times;  // arrival of chunks with a token; the first ends TTFT
  double lag_ms = 0;                    // delay of the client's own start

  double ttft_ms() const;
  double second_gap_ms() const;  // between chunks 1 and 2; -1 = there was no second
  double e2el_ms() const;
  std::vector<double> gaps_ms() const;  // between all chunks
  std::vector<double> itl_ms() const;   // gaps after the second chunk
};

// Greedy, exactly max_tokens tokens (ignore_eos), streamed. on_chunk (may be empty) runs after
// each.
Outcome RunLoadRequest(const HttpClient& client, const LoadRequest& request,
                       const std::function<void(const Outcome&)>& on_chunk = nullptr);
// Runs a request whose client goes away at the deadline; the outcome is then cut.
Outcome RunLoadRequestUntil(const HttpUrl& url, const LoadRequest& request, absl::Time deadline);

struct Distribution {
  std::vector<double> values;  // sorted
  explicit Distribution(std::vector<double> samples);
  double mean() const;
  double percentile(double percent) const;  // linear between samples; 0 when empty
};

}  // namespace baton
