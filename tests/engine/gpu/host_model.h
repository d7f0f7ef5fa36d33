// Kernels of HostCuda that compute: the forward pass of a CPU's engine on pages that HostCuda has
// given, and the host's sampler in the place of the plugin's. They read blocks, fed tokens, pages
// and parameters of sampling when they are executed.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/cuda/device/metadata_block.h"
#include "engine/cuda/device/step_kernels.h"
#include "engine/cuda/sample_row.h"
#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"
#include "engine/threads/mxcsr.h"
#include "tests/engine/gpu/host_cuda.h"

namespace baton {

// Samples as the plugin does: rows that need temperature alone; all others get token -1. Returns
// how many it sampled.
inline int SampleAsPlugin(Sampler& sampler, const float* logits, int32_t n, int32_t vocab,
                          const void* rows, void* results, int32_t* sampled) {
  const NumericsMxcsrScope numerics;
  int n_sampled = 0;
  const auto* const all = static_cast<const SampleRowArguments*>(rows);
  for (int i = 0; i < n; ++i) {
    SampledToken token{.token = -1};
    if (all[i].drawable > 0) {
      ++n_sampled;
      SamplingParams params;
      params.temperature = all[i].temperature;
      params.seed = all[i].seed;
      token = sampler.Sample({logits + int64_t{i} * vocab, static_cast<size_t>(vocab)}, params,
                             all[i].position);
      const SampleRowResult result{.token = token.token, .logprob = token.logprob};
      std::memcpy(static_cast<std::byte*>(results) + int64_t{all[i].result} * 8, &result,
                  sizeof(result));
    }
    if (sampled != nullptr) sampled[i] = token.token;
  }
  return n_sampled;
}

class HostModel {
 public:
  // n_pages: of the pool.
  HostModel(HostCuda& cuda, std::unique_ptr<Backend> engine, int n_pages)
      : cuda_(cuda), engine_(std::move(engine)), n_pages_(n_pages) {
    cuda.kernels.begin = [this](const void* block, const int32_t* sampled, void* kv) {
      step_ = Read(block, kv);
      for (int32_t& token : step_->tokens) {
        if (!IsFed(token)) continue;
        token = sampled[LogitsOfFed(token)];
        if (token >= 0 && token < engine_->model().vocab) continue;
        cuda_.streams().Report("what is fed is no token");
        token = 0;
      }
      engine_->Begin(step_->batch);
    };
    cuda.kernels.layer = [this](int32_t layer, float* logits) {
      engine_->RunLayers(layer, layer + 1);
      if (layer + 1 < engine_->model().n_layers) return;
      const auto n = static_cast<int>(step_->batch.logit_rows.size());
      for (int i = 0; i < n; ++i)
        std::ranges::copy(engine_->logits(i), logits + int64_t{i} * engine_->model().vocab);
    };
    cuda.kernels.scored_logits = [this](int32_t from, int32_t to, float* logits) {
      std::ranges::copy(engine_->ScoredLogits(from, to), logits);
    };
    cuda.kernels.begin_slice = [this](const void* block, void* kv) {
      slice_ = Read(block, kv);
      engine_->BeginSlice(slice_->batch);
    };
    cuda.kernels.project_slice = [this](int32_t layer, int32_t from, int32_t to) {
      engine_->ProjectSlice(layer, from, to);
    };
    cuda.kernels.finish_slice = [this](int32_t layer, int32_t from, int32_t to, float* logits) {
      engine_->FinishSlice(layer, from, to);
      if (logits != nullptr) std::ranges::copy(engine_->slice_logits(), logits);
    };
    cuda.kernels.sample = [this](const float* logits, int32_t n, int32_t vocab, const void* rows,
                                 void* results, int32_t* sampled) {
      SampleAsPlugin(sampler_, logits, n, vocab, rows, results, sampled);
    };
  }
  HostModel(const HostModel&) = delete;
  HostModel& operator=(const HostModel&) = delete;

  DeviceModel described() const {
    DeviceModel model;
    model.desc = &engine_->model();
    model.layout = engine_->kv_layout();
    model.numerics_id = engine_->numerics_id();
    model.limits = engine_->limits();
    model.limits.slice_keys = 0;  // as on a GPU
    return model;
  }
  ModelView view() const {
    ModelView view;
    view.vocab = engine_->model().vocab;
    view.max_step_rows = engine_->limits().max_step_tokens;
    return view;
  }

 private:
  // A copy of a block (metadata_block.h), whose pages have no frames.
  struct Block {
    std::vector<int32_t> numbers;
    std::vector<RopeRange> ropes;
    std::span<int32_t> tokens;
    StepBatch batch;
  };

  std::unique_ptr<Block> Read(const void* block, void* kv) {
    if (kv != kv_) {
      kv_ = kv;
      layout_ = engine_->kv_layout();
      const int n = n_pages_ + 1;  // the last takes what padding writes
      engine_->SetPages({&layout_, static_cast<std::byte*>(kv), n, n});
    }
    BlockCounts counts;
    std::memcpy(&counts, block, sizeof(counts));
    BATON_CHECK(counts.n_planes == 0);
    const auto* const first = static_cast<const int32_t*>(block);
    auto made = std::make_unique<Block>();
    made->numbers.assign(first, first + counts.bytes() / int64_t{sizeof(int32_t)});
    size_t at = sizeof(counts) / sizeof(int32_t);
    const auto take = [&](int32_t n) {
      const std::span<int32_t> taken = std::span(made->numbers).subspan(at, static_cast<size_t>(n));
      at += taken.size();
      return taken;
    };
    StepBatch& batch = made->batch;
    batch.tokens = made->tokens = take(counts.n_tokens);
    batch.positions = take(counts.n_tokens);
    batch.piece_begin = take(counts.n_pieces + 1);
    batch.page_begin = take(counts.n_pieces + 1);
    batch.pages = take(counts.n_pages);
    batch.logit_rows = take(counts.n_logits);
    batch.scored_rows = take(counts.n_scored);
    for (const int32_t rope : take(counts.n_pieces))
      made->ropes.push_back(static_cast<RopeRange>(rope));
    batch.ropes = made->ropes;
    BATON_CHECK(at == made->numbers.size());
    return made;
  }

  HostCuda& cuda_;
  const std::unique_ptr<Backend> engine_;
  const int n_pages_;
  void* kv_ = nullptr;
  KvLayout layout_;
  std::unique_ptr<Block> step_, slice_;
  Sampler sampler_;
};

}  // namespace baton
