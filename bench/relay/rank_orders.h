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
#include "engine/step/engine_lab.h"
#include "lab/link_pace.h"

namespace baton {

// First line: the options of the process.
struct RankStart {
  EngineOptions engine;
  EngineLab lab;
  std::vector<int> cpus;        // CPUs that the process is pinned to
  int max_tokens = 0;           // max length of a prompt
  int pool_pages = 0;           // 0: for a prompt of max_tokens
  bool with_residuals = false;  // the pool has room for two residual streams of a prompt, too
  Incarnation incarnation = 0;
  LinkPace pace;  // its noise applies to noisy prompts
};

// The answer to RankStart.
struct RankStarted {
  std::string address;  // address of the Transfer
  std::string numerics_id, isa, model;
  int n_layers = 0, page_tokens = 0;
  int64_t page_bytes = 0;
  int64_t residual_bytes = 0;  // per token; 0: the process cannot be a stage of a pipeline
  uint64_t model_fingerprint = 0;
};

// KV of pages [first_page, first_page + n_pages) of the prompt, layer by layer, from one process to
// another. Pages behind the prompt's carry the residual stream of a pipeline, and may have other
// places here and there.
struct RankLink {
  uint64_t ticket = 0;
  Incarnation sink = 0;
  std::string address;  // address of the sink
  int first_page = 0, n_pages = 0;
};

// One prompt. The process answers "ready"; after "go" and the end of the prompt it answers a
// RankDone.
struct RankRun {
  int tokens = 0;          // tokens of the prompt
  int begin = 0, end = 0;  // the slice, in whole pages except at the prompt's end; empty: a sink
  uint64_t seed = 1;       // seed of the generated prompt
  // Not empty: begin and end of several pieces instead of one, ascending, from `begin` to `end`.
  std::vector<int> pieces = {};
  // Not empty: begin and end of ranges of keys in the order of attention, each as soon as it has
  // arrived; whole segments. Changes the bits.
  std::vector<int> key_ranges = {};
  // Not empty: a stage of a pipeline, with layers [first_layer, end_layer) and chunks of these
  // lengths; the links carry the residual stream.
  std::vector<int> chunks = {};
  int first_layer = 0, end_layer = 0;
  bool noisy = false;         // the links carry other traffic too
  bool wants_logits = false;  // the answer has the last token's logits in addition to their digest
  bool by_steps = false;      // chunks of steps instead of a slice
  bool streams = false;       // attention reads keys as they arrive
  bool cuts_through = false;  // passes pages on as they arrive, else whole layers
  std::vector<RankLink> in, out;
};

// Times: seconds of the monotonic clock, which all processes of a machine share.
struct RankDone {
  double computed = 0;  // end of its part of the prompt, with the first token
  double arrived = 0;   // end of the last inflow; 0: no inflow
  double waited = 0;    // seconds without work in between
  // Seconds of a slice's layers except the last; of the norm, queries, keys and values in them; and
  // of the median layer.
  double layers = 0, projections = 0, median_layer = 0;
  std::string digest;              // of the last token's logits, if the process has them
  std::vector<float> logits = {};  // of the last token, if wanted
  int64_t bytes_sent = 0;          // payload
  int64_t kv_bytes = 0;            // bytes of the pages held
  int64_t peak_memory = 0;         // peak of the process so far: anonymous and shared pages
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
