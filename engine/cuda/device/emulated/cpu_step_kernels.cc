#include "engine/cuda/device/emulated/cpu_step_kernels.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "engine/cuda/device/sampled_results.h"

namespace baton {
namespace {

// The bytes of pages of a device.
class ViewArena : public KvArena {
 public:
  explicit ViewArena(std::byte* bytes) : KvArena(bytes) {}
};

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
  if (state.kv == kv_) return;
  const KvLayout& layout = engine_->kv_layout();
  std::byte* const bytes = memory.At(state.kv, state.n_pages * layout.page_bytes);
  absl::StatusOr<std::unique_ptr<KvPool>> pages =
      KvPool::Create(layout, static_cast<int>(state.n_pages),
                     [bytes](int64_t) -> absl::StatusOr<std::unique_ptr<KvArena>> {
                       return std::make_unique<ViewArena>(bytes);
                     });
  BATON_CHECK(pages.ok());
  pages_ = *std::move(pages);
  kv_ = state.kv;
  engine_->SetPool(pages_.get());
}

std::unique_ptr<BlockStep> CpuStepKernels::ReadBlock(KernelMemory& memory, const std::byte* block) {
  BlockCounts counts;
  std::memcpy(&counts, memory.Reads(block, sizeof(counts)), sizeof(counts));
  const std::byte* const bytes = memory.Reads(block, counts.bytes());
  if (!memory.error().empty()) return nullptr;
  return std::make_unique<BlockStep>(counts, bytes);
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

void CpuStepKernels::WritePlanes(KernelMemory& memory, const KernelState& state, int layer,
                                 const Rows& rows) {
  const KvLayout& layout = engine_->kv_layout();
  const KvPlane& plane = layout.planes[static_cast<size_t>(layer)];
  const StepBatch& batch = rows.batch;
  int32_t latest = kNoPage;
  for (int piece = 0; piece < batch.n_pieces(); ++piece) {
    const int from = std::max(rows.from, batch.piece_begin[piece]);
    for (int row = from; row < std::min(rows.to, batch.piece_begin[piece + 1]); ++row) {
      const int entry = batch.page_begin[piece] + batch.positions[row] / layout.page_tokens;
      const int32_t page = batch.pages[static_cast<size_t>(entry)];
      if (page == latest) continue;
      memory.Writes(state.kv + page * layout.page_bytes + plane.offset, plane.bytes);
      latest = page;
    }
  }
}

void CpuStepKernels::ReadPlanes(KernelMemory& memory, const KernelState& state, int layer,
                                const Rows& rows) {
  const KvLayout& layout = engine_->kv_layout();
  const KvPlane& plane = layout.planes[static_cast<size_t>(layer)];
  const StepBatch& batch = rows.batch;
  for (int piece = 0; piece < batch.n_pieces(); ++piece) {
    const int end = std::min(rows.to, batch.piece_begin[piece + 1]);
    if (end <= std::max(rows.from, batch.piece_begin[piece])) continue;
    const int n_pages = batch.positions[end - 1] / layout.page_tokens + 1;
    for (const int32_t page : batch.pages.subspan(batch.page_begin[piece], n_pages)) {
      if (page == kNoPage) continue;
      memory.Reads(state.kv + page * layout.page_bytes + plane.offset, plane.bytes);
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
  engine_->Begin(step_->batch());
}

void CpuStepKernels::Layer(KernelMemory& memory, const LayerArguments& a) {
  Bind(memory, a.state);
  const StepBatch batch = step_->batch();
  const Rows all{batch, 0, batch.n_tokens()};
  WritePlanes(memory, a.state, a.layer, all);
  ReadPlanes(memory, a.state, a.layer, all);
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
  engine_->BeginSlice(slice_->batch());
}

void CpuStepKernels::SlicePart(KernelMemory& memory, const SlicePartArguments& a) {
  Bind(memory, a.state);
  const StepBatch batch = slice_->batch();
  const Rows rows{batch, a.from, a.to};
  switch (a.part) {
    case SlicePartArguments::kProject:
      WritePlanes(memory, a.state, a.layer, rows);
      return engine_->ProjectSlice(a.layer, a.from, a.to);
    case SlicePartArguments::kAttend:
      ReadPlanes(memory, a.state, a.layer, rows);
      return engine_->AttendSlice(a.layer, a.from, a.to, a.end_key);
    case SlicePartArguments::kFinish:
      ReadPlanes(memory, a.state, a.layer, rows);
      engine_->FinishSlice(a.layer, a.from, a.to);
      if (a.logits != nullptr)
        std::ranges::copy(engine_->slice_logits(), memory.Writes(a.logits, vocab_));
      return;
  }
}

}  // namespace baton
