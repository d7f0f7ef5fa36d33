// Results of sampling and scoring as bytes: a kernel writes them, a copy brings them to the host.
// Both sides know from what was asked how many bytes a row has. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling/sampler.h"
#include "engine/step/step_output.h"

namespace baton {

int64_t SampledBytes(std::span<const RowSampling> rows);
// Rows that nobody reads are left as they are.
void WriteSampled(std::span<const RowSampling> rows, std::span<const SampledToken> sampled,
                  std::byte* to);
std::vector<SampledToken> ReadSampled(std::span<const RowSampling> rows, const std::byte* from);

int64_t ScoredBytes(int n, int top);
void WriteScored(std::span<const PromptLogprob> scored, int top, std::byte* to);
void ReadScored(std::span<PromptLogprob> scored, int top, const std::byte* from);

}  // namespace baton
