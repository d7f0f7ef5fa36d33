#include "engine/step/host_backend.h"

#include <utility>

#include "common/check.h"

namespace baton {

Sampler& HostBackend::sampler() {
  if (!sampler_) sampler_.emplace(compute_pool());
  return *sampler_;
}

void HostBackend::Sample(std::span<const RowSampling> rows, StepOutput* out) {
  rows_.clear();
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].sampling != nullptr)
      rows_.push_back({.logits = logits(static_cast<int>(i)),
                       .sampling = rows[i].sampling.get(),
                       .position = rows[i].position});
  sampled_.assign(rows_.size(), {});
  sampler().SampleRows(rows_, sampled_);
  out->sampled.assign(rows.size(), {});
  for (size_t i = 0, at = 0; i < rows.size(); ++i) {
    if (rows[i].sampling == nullptr) continue;
    out->sampled[i] = std::move(sampled_[at]);
    if (rows[i].wants_digest) out->sampled[i].digest = LogitsDigest(rows_[at].logits, 0);
    ++at;
  }
}

void HostBackend::Score(const ScoredRows& rows, std::span<PromptLogprob> out) {
  const int n = static_cast<int>(rows.tokens.size());
  sampler().ScoreRows(ScoredLogits(rows.first, rows.first + n), rows.tokens, rows.top, rows.end,
                      out);
}

void HostBackend::SampleSlice(const RowSampling& row, StepOutput* out) {
  BATON_CHECK(row.sampling != nullptr);
  out->sampled.assign(1, sampler().Sample(slice_logits(), *row.sampling, row.position));
  if (row.wants_digest) out->sampled[0].digest = LogitsDigest(slice_logits(), 0);
}

}  // namespace baton
