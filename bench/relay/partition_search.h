// Partitions found by trying them: the paper's hierarchical grid search (KVR-S) and a coordinate
// search for more ranks than a grid can afford (arXiv 2405.05329; docs/PLANNER.md). The objective
// is a prompt's time, measured or simulated. Pure functions around it, any thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace baton {

// Seconds of a prompt cut into these slices (ranks).
using PartitionTime = std::function<double(std::span<const double> slices)>;

struct FoundPartition {
  std::vector<double> slices;
  double seconds = 0;
  int evaluations = 0;
};

// Five values per inner boundary around the best so far, even slices first, all combinations; the
// stride halves per level down to `min_stride` tokens. At most 5^(ranks - 1) evaluations a level.
FoundPartition GridSearch(const PartitionTime& time, double tokens, int ranks, double min_stride);

// Searches from `start`: moves one boundary at a time by one and two strides, keeps improvements,
// at most two passes a stride; the stride halves from tokens / 16 down to `min_stride`.
FoundPartition CoordinateSearch(const PartitionTime& time, std::span<const double> start,
                                double min_stride);

}  // namespace baton
