// `baton bench relay MODEL`: prefill by several real processes of this machine, all schemes in
// turns. Measures seconds to the first token, the bytes of the links against their formula, the
// time when a decode worker had all KV, and whether all schemes gave the same logits. Links are
// emulated where --link says so. One thread.
#pragma once

#include <string>
#include <vector>

#include "bench/relay/relay_result.h"
#include "bench/relay/relay_rig.h"

namespace baton {

struct RelayMeasurementOptions {
  RelayRigOptions rig;
  int tokens = 4096;
  std::vector<double> links = {0};  // bytes/s per direction; 0: as fast as loopback is
  // steps: one worker, chunk by chunk; one: the same as a slice; wide: one worker with the threads
  // of all ranks; kvr-e, kvr-s, kvr-p, closed: the paper's chain with those slices; cut-through,
  // then streaming, then push (to a decode worker, every rank its slice); last: streaming, the last
  // rank pushes all; tsp: even slices, everything gathered by everyone; zigzag: the same with two
  // pieces a rank, as much work for each; ring: keys go around, and are met in that order (other
  // bits); pipeline: every rank has a part of the layers, the prompt comes in chunks of equal work;
  // stubbed: kvr-s that sends nothing and waits for nothing.
  std::vector<std::string> schemes = {
      "steps",     "one",  "wide", "kvr-e", "kvr-s",  "kvr-p", "closed",   "cut-through",
      "streaming", "push", "last", "tsp",   "zigzag", "ring",  "pipeline", "stubbed"};
  int rounds = 3;  // all schemes once in each
  // Noise on the links. If set, each scheme runs twice in a round, without the noise and with it,
  // on slices found for quiet links. noise.workers is at least the number of ranks, which are the
  // first of them. (With two workers the only pair would be slow all the time.)
  LinkNoise noise = {.workers = 4};
  // Runs each scheme once more on processes of its own, whose pools have the pages that it needs,
  // and measures the memory of each process.
  bool memory = false;
  bool json = false;
};

struct RelayMeasured {
  std::string table;                 // text for people
  std::vector<RelayResult> results;  // measured, and simulated with the fitted constants
  std::vector<RelayClaim> claims;
};
absl::StatusOr<RelayMeasured> MeasureRelay(const RelayMeasurementOptions& options);
// Prints the table and the claims. Errors: those of MeasureRelay, a scheme with other bits than one
// worker although it promises the same, and a link that carried other bytes than it should.
absl::Status RunRelayMeasurement(const RelayMeasurementOptions& options);

}  // namespace baton
