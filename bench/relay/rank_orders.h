// Messages between the coordinator of `baton bench relay` and its processes: one JSON object per
// line, over a descriptor of each process. Plain values; the coordinator is trusted, a line that
// does not parse is an error for the reader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "engine/step/backend.h"
#include "kvtransfer/links/link_pace.h"

namespace baton {

// First line: what the process is.
struct RankStart {
  EngineOptions engine;
  std::vector<int> cpus;        // that it is pinned to
  int max_tokens = 0;           // of a prompt
  int pool_pages = 0;           // 0: for a prompt of max_tokens
  bool with_residuals = false;  // its pool has room for two residual streams of a prompt, too
  Incarnation incarnation = 0;
  LinkPace pace;  // its noise is there in noisy prompts
};

// Its answer.
struct RankStarted {
  std::string address;  // of its Transfer
  std::string numerics_id, isa, model;
  int n_layers = 0, page_tokens = 0;
  int64_t page_bytes = 0;
  int64_t residual_bytes = 0;  // of a token; 0: it cannot be a stage of a pipeline
  uint64_t model_fingerprint = 0;
};

// KV of pages [first_page, first_page + n_pages) of the prompt, layer by layer, from one process to
// another. Pages behind the prompt's carry the residual stream of a pipeline, and may have other
// places here and there.
struct RankLink {
  uint64_t ticket = 0;
  Incarnation sink = 0;
  std::string address;  // of the sink
  int first_page = 0, n_pages = 0;
};

// One prompt. Answered by "ready"; then comes "go", and when all is over the answer is a RankDone.
struct RankRun {
  int tokens = 0;          // of the prompt
  int begin = 0, end = 0;  // its slice, in whole pages but for the prompt's end; empty: a mere sink
  uint64_t seed = 1;       // of the made-up prompt
  // Not empty: begin and end of several pieces instead, ascending, from `begin` to `end`.
  std::vector<int> pieces = {};
  // Not empty: begin and end of ranges of keys, in the order in which attention meets them, each as
  // soon as it is there; whole segments. The bits are then others.
  std::vector<int> key_ranges = {};
  // Not empty: a stage of a pipeline, layers [first_layer, end_layer) of chunks of so many tokens;
  // the links carry the residual stream.
  std::vector<int> chunks = {};
  int first_layer = 0, end_layer = 0;
  bool noisy = false;         // with other traffic on its links
  bool wants_logits = false;  // the last token's are to be told, beside their digest
  bool by_steps = false;      // chunks of steps instead of a slice
  bool streams = false;       // attention reads keys as they come
  bool cuts_through = false;  // pages go on as they are there, else layers when they are whole
  std::vector<RankLink> in, out;
};

// Times: seconds of the monotonic clock, which all processes of a machine share.
struct RankDone {
  double computed = 0;  // when its part of the prompt was, the first token included
  double arrived = 0;   // when the last inflow had; 0: none
  double waited = 0;    // seconds that it had nothing to compute in between
  // Seconds of a slice's layers but the last, of the norm, queries, keys and values in them, and of
  // the median of these layers.
  double layers = 0, projections = 0, median_layer = 0;
  std::string digest;              // of the last token's logits, where it has them
  std::vector<float> logits = {};  // of the last token, where they are wanted
  int64_t bytes_sent = 0;          // payload
  int64_t kv_bytes = 0;            // of pages it held
  int64_t peak_memory = 0;         // of the process so far: anonymous and shared pages
};

std::string ToLine(const RankStart& start);
std::string ToLine(const RankStarted& started);
std::string ToLine(const RankRun& run);
std::string ToLine(const RankDone& done);
absl::Status FromLine(const std::string& line, RankStart* start);
absl::Status FromLine(const std::string& line, RankStarted* started);
absl::Status FromLine(const std::string& line, RankRun* run);
absl::Status FromLine(const std::string& line, RankDone* done);

}  // namespace baton
