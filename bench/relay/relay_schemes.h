// The schemes of prefill that `baton bench relay MODEL` compares: the division of a prompt, the
// work of the processes, the time by simulation, and the bytes sent. One thread.
#pragma once

#include <string>
#include <vector>

#include "bench/relay/relay_rig.h"
#include "bench/relay/relay_simulation.h"

namespace baton {

struct Scheme {
  enum class Kind { kOne, kWide, kChain, kGather, kZigzag, kPipeline };
  Kind kind = Kind::kChain;
  int tokens = 0;
  bool by_steps = false, cuts_through = false, streams = false;
  bool rotates = false;  // attention takes keys in the ring's order: other bits
  bool stubbed = false;  // sends nothing and waits for nothing: meaningless bits
  enum class Sink { kNone, kEveryRank, kLastRank } sink = Sink::kNone;
  std::vector<int> slices = {};      // (ranks); for one worker: the prompt
  std::vector<int> chunks = {};      // of a pipeline, instead of slices
  std::vector<int> layer_ends = {};  // of a pipeline's stages

  int ranks() const {
    return static_cast<int>(kind == Kind::kPipeline ? layer_ends.size() : slices.size());
  }
  bool has_bits_of_one() const { return !rotates && !stubbed; }
  const std::vector<int>& cuts() const { return kind == Kind::kPipeline ? chunks : slices; }
};

// Error: an unknown name, or the scheme cannot divide so many tokens. Slices of balanced schemes
// follow the cluster's costs and link.
absl::StatusOr<Scheme> MakeScheme(const std::string& name, const SimulatedCluster& cluster,
                                  const RelayRig& rig, int tokens);
// Returns the seconds to the first token.
double PredictScheme(const Scheme& scheme, const SimulatedCluster& cluster, int ranks);
// The work of each process of the rig.
std::vector<RankRun> PlanScheme(const Scheme& scheme, RelayRig& rig);
// Returns the process that has the prompt's last logits.
int TailOf(const Scheme& scheme, const RelayRig& rig);
// Payload of all links, by the formulas: a chain's link behind rank i carries all tokens before the
// end of slice i once, a gather every slice to all others, a sink every token once; the link behind
// a stage of a pipeline carries the residual stream, in whole pages.
int64_t BytesDue(const Scheme& scheme, const RelayRig& rig);

}  // namespace baton
