#include "engine/cuda/device/emulated/cpu_step_kernels.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "engine/cuda/device/sampled_results.h"
#include "engine/kv/kv_pool.h"

namespace baton {
namespace {

template <typename Arguments, typename Kernel>
OperationRunner::Kernel Typed(const Kernel& kernel) {
  return [kernel](KernelMemory& memory, std::span<const std::byte> bytes) {
    BATON_CHECK(bytes.size() == sizeof(Arguments));
    Arguments arguments;
    std::memcpy(&arguments, bytes.data(), sizeof(arguments));
    kernel(memory, arguments);
  };
}

}  // namespace

CpuStepKernels::CpuStepKernels(std::unique_ptr<Backend> engine)
    : engine_(std::move(engine)),
      vocab_(engine_->model().vocab),
      sampler_(engine_->compute_pool()) {
  BATON_CHECK(engine_->depth() == 1);
}

DeviceModel CpuStepKernels::model() const {
  return {&engine_->model(),
          engine_->kv_layout(),
          engine_->numerics_id(),
          engine_->model_fingerprint(),
          "emulated by " + engine_->isa(),
          engine_->limits(),
          engine_->weight_memory()};
}

void CpuStepKernels::AddTo(OperationRunner& runner) {
  const auto add =
      [&]<typename Arguments>(void (CpuStepKernels::*kernel)(KernelMemory&, const Arguments&)) {
        runner.AddKernel(Arguments::kName,
                         Typed<Arguments>([this, kernel](KernelMemory& memory, const Arguments& a) {
                           (this->*kernel)(memory, a);
                         }));
      };
  add(&CpuStepKernels::Begin);
  add(&CpuStepKernels::Layer);
  add(&CpuStepKernels::ScoredLogits);
  add(&CpuStepKernels::Sample);
  add(&CpuStepKernels::Score);
  add(&CpuStepKernels::BeginSlice);
  add(&CpuStepKernels::SlicePart);
}

// --- memory

void CpuStepKernels::Bind(KernelMemory& memory, const KernelState& state) {
  memory.Writes(state.activations, kActivationBytes);
  if (state.kv == pages_.base) return;
  const KvLayout& layout = engine_->kv_layout();
  if (layout.planes_apart())
    frames_.assign(static_cast<size_t>(state.n_page_ids * layout.n_layers()), -1);
  pages_ = {&layout, state.kv, state.n_pages, state.n_page_ids,
            frames_.empty() ? nullptr : frames_.data()};
  KvPages host = pages_;
  host.base = memory.At(state.kv, state.n_pages * layout.page_bytes);
  engine_->SetPages(host);
}

std::unique_ptr<BlockStep> CpuStepKernels::ReadBlock(KernelMemory& memory, const std::byte* block) {
  BlockCounts counts;
  std::memcpy(&counts, memory.Reads(block, sizeof(counts)), sizeof(counts));
  const std::byte* const bytes = memory.Reads(block, counts.bytes());
  if (!memory.error().empty()) return nullptr;
  return std::make_unique<BlockStep>(counts, bytes);
}

void CpuStepKernels::TakeFrames(const BlockStep& block) {
  const std::span<const int32_t> frames = block.frames();
  if (frames.empty()) return;
  const int n_planes = engine_->kv_layout().n_layers();
  const std::span<const int32_t> entries = block.batch().pages;
  for (size_t i = 0; i < entries.size(); ++i) {
    const int32_t page = PageOf(entries[i]);
    if (page == kNoPage) continue;
    std::copy_n(frames.begin() + static_cast<int64_t>(i) * n_planes, n_planes,
                frames_.begin() + int64_t{page} * n_planes);
  }
}

bool CpuStepKernels::Feed(KernelMemory& memory, const int32_t* sampled, std::span<int32_t> tokens) {
  for (int32_t& token : tokens) {
    if (!IsFed(token)) continue;
    token = *memory.Reads(sampled + LogitsOfFed(token), 1);
    if (token >= 0 && token < vocab_) continue;
    memory.Fail(absl::StrFormat("is fed %d, which is no token", token));
    return false;
  }
  return true;
}

void CpuStepKernels::WritePlanes(KernelMemory& memory, int layer, const Rows& rows) {
  const KvLayout& layout = engine_->kv_layout();
  const int64_t bytes = layout.planes[static_cast<size_t>(layer)].bytes;
  const StepBatch& batch = rows.batch;
  int32_t latest = kNoPage;
  for (int piece = 0; piece < batch.n_pieces(); ++piece) {
    const int from = std::max(rows.from, batch.piece_begin[piece]);
    for (int row = from; row < std::min(rows.to, batch.piece_begin[piece + 1]); ++row) {
      const int entry = batch.page_begin[piece] + batch.positions[row] / layout.page_tokens;
      const int32_t page = batch.pages[static_cast<size_t>(entry)];
      if (page == latest) continue;
      memory.Writes(pages_.plane(page, layer), bytes);
      latest = page;
    }
  }
}

void CpuStepKernels::ReadPlanes(KernelMemory& memory, int layer, const Rows& rows) {
  const KvLayout& layout = engine_->kv_layout();
  const KvPlane& plane = layout.planes[static_cast<size_t>(layer)];
  const StepBatch& batch = rows.batch;
  for (int piece = 0; piece < batch.n_pieces(); ++piece) {
    const int end = std::min(rows.to, batch.piece_begin[piece + 1]);
    if (end <= std::max(rows.from, batch.piece_begin[piece])) continue;
    const int n_pages = batch.positions[end - 1] / layout.page_tokens + 1;
    for (const int32_t entry : batch.pages.subspan(batch.page_begin[piece], n_pages)) {
      // A trimmed page has no plane of a layer with a window, and no key that a row sees there.
      if (entry == kNoPage || (plane.has_window && !IsWhole(entry))) continue;
      memory.Reads(pages_.plane(PageOf(entry), layer), plane.bytes);
    }
  }
}

// --- steps

void CpuStepKernels::Begin(KernelMemory& memory, const BeginArguments& a) {
  Bind(memory, a.state);
  std::unique_ptr<BlockStep> step = ReadBlock(memory, a.block);
  if (step == nullptr || !Feed(memory, a.sampled, step->tokens())) return;
  step_ = std::move(step);
  if (step_->batch().n_tokens() != a.n_rows) {
    return memory.Fail(
        absl::StrFormat("is launched for %d rows and has %d", a.n_rows, step_->batch().n_tokens()));
  }
  TakeFrames(*step_);
  engine_->Begin(step_->batch());
}

void CpuStepKernels::Layer(KernelMemory& memory, const LayerArguments& a) {
  Bind(memory, a.state);
  const StepBatch batch = step_->batch();
  const Rows all{batch, 0, batch.n_tokens()};
  WritePlanes(memory, a.layer, all);
  ReadPlanes(memory, a.layer, all);
  engine_->RunLayers(a.layer, a.layer + 1);
  if (a.layer + 1 < engine_->model().n_layers) return;
  const auto n = static_cast<int>(batch.logit_rows.size());
  if (n == 0) return;
  float* const logits = memory.Writes(a.logits, n * vocab_);
  for (int i = 0; i < n; ++i) std::ranges::copy(engine_->logits(i), logits + i * vocab_);
}

void CpuStepKernels::ScoredLogits(KernelMemory& memory, const ScoredLogitsArguments& a) {
  Bind(memory, a.state);
  float* const logits = memory.Writes(a.logits, (a.to - a.from) * vocab_);
  std::ranges::copy(engine_->ScoredLogits(a.from, a.to), logits);
}

void CpuStepKernels::Sample(KernelMemory& memory, const SampleArguments& a) {
  const std::span<const RowSampling> rows(a.rows, static_cast<size_t>(a.n));
  std::vector<SampledToken> sampled(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].sampling != nullptr) {
      const std::span logits(memory.Reads(a.logits + static_cast<int64_t>(i) * vocab_, vocab_),
                             static_cast<size_t>(vocab_));
      sampled[i] = sampler_.Sample(logits, *rows[i].sampling, rows[i].position);
      if (rows[i].wants_digest) sampled[i].digest = LogitsDigest(logits, 0);
    }
    if (a.sampled != nullptr)  // a token that nobody samples must not be fed
      *memory.Writes(a.sampled + i, 1) = rows[i].sampling == nullptr ? -1 : sampled[i].token;
  }
  if (a.result_bytes > 0) WriteSampled(rows, sampled, memory.Writes(a.results, a.result_bytes));
}

void CpuStepKernels::Score(KernelMemory& memory, const ScoreArguments& a) {
  const auto n = static_cast<size_t>(a.n);
  const std::span logits(memory.Reads(a.logits, a.n * vocab_), n * static_cast<size_t>(vocab_));
  std::vector<PromptLogprob> scored(n);
  sampler_.ScoreRows(logits, std::span(a.tokens, n), a.top, static_cast<size_t>(a.end), scored);
  WriteScored(scored, a.top, memory.Writes(a.results, a.result_bytes));
}

// --- slices

void CpuStepKernels::BeginSlice(KernelMemory& memory, const BeginSliceArguments& a) {
  Bind(memory, a.state);
  std::unique_ptr<BlockStep> slice = ReadBlock(memory, a.block);
  if (slice == nullptr) return;
  slice_ = std::move(slice);
  TakeFrames(*slice_);
  engine_->BeginSlice(slice_->batch());
}

void CpuStepKernels::SlicePart(KernelMemory& memory, const SlicePartArguments& a) {
  Bind(memory, a.state);
  const StepBatch batch = slice_->batch();
  const Rows rows{batch, a.from, a.to};
  switch (a.part) {
    case SlicePartArguments::kProject:
      WritePlanes(memory, a.layer, rows);
      return engine_->ProjectSlice(a.layer, a.from, a.to);
    case SlicePartArguments::kAttend:
      ReadPlanes(memory, a.layer, rows);
      return engine_->AttendSlice(a.layer, a.from, a.to, a.end_key);
    case SlicePartArguments::kFinish:
      ReadPlanes(memory, a.layer, rows);
      engine_->FinishSlice(a.layer, a.from, a.to);
      if (a.logits != nullptr)
        std::ranges::copy(engine_->slice_logits(), memory.Writes(a.logits, vocab_));
      return;
  }
}

}  // namespace baton
