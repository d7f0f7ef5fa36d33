#include "engine/cuda/device/gpu/gpu_step_kernels.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "engine/cuda/device/sampled_results.h"
#include "engine/cuda/sample_row.h"
#include "engine/threads/mxcsr.h"

namespace baton {
namespace {

constexpr int64_t kMinStaging = 64 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<GpuStepKernels>> GpuStepKernels::Create(GpuDevice& device,
                                                                       const ModelView& view,
                                                                       ComputePool* pool) {
  std::unique_ptr<GpuStepKernels> kernels(new GpuStepKernels(device, view, pool));
  RETURN_IF_ERROR(kernels->Reserve(view));
  kernels->AddKernels();
  return kernels;
}

GpuStepKernels::GpuStepKernels(GpuDevice& device, const ModelView& view, ComputePool* pool)
    : device_(device), vocab_(view.vocab), host_(std::make_shared<Host>(pool)) {}

GpuStepKernels::~GpuStepKernels() {
  {
    const std::lock_guard lock(host_->mutex);
    host_->is_over = true;
  }
  device_.Select();
  if (model_ != nullptr) device_.api().model.remove(model_);
  for (std::byte* const memory : {scratch_, logits_})
    if (memory != nullptr) device_.Free(memory);
  for (const std::unique_ptr<Staging>& staging : staging_) device_.Free(staging->at);
}

absl::Status GpuStepKernels::Reserve(const ModelView& view) {
  device_.Select();
  RETURN_IF_ERROR(device_.CheckMemory(device_.api().model.create(&view, &model_), "activations"));
  device_.CountUsed(device_.api().model.bytes(model_));
  ASSIGN_OR_RETURN(scratch_, device_.Allocate(device_.api().model.sample_scratch_bytes(
                                                  view.max_step_rows, view.vocab),
                                              "sampling"));
  ASSIGN_OR_RETURN(logits_, device_.AllocatePinned(kRowsAtOnce * vocab_ * int64_t{sizeof(float)},
                                                   "logits on the host"));
  return absl::OkStatus();
}

template <typename Arguments>
void GpuStepKernels::Add(absl::Status (GpuStepKernels::*kernel)(DeviceStream, void*,
                                                                const Arguments&)) {
  device_.AddKernel(Arguments::kName, [this, kernel](DeviceStream stream, void* on,
                                                     std::span<const std::byte> bytes) {
    BATON_CHECK(bytes.size() == sizeof(Arguments));
    Arguments arguments;
    std::memcpy(&arguments, bytes.data(), sizeof(arguments));
    return (this->*kernel)(stream, on, arguments);
  });
}

void GpuStepKernels::AddKernels() {
  Add(&GpuStepKernels::Begin);
  Add(&GpuStepKernels::Layer);
  Add(&GpuStepKernels::ScoredLogits);
  Add(&GpuStepKernels::Sample);
  Add(&GpuStepKernels::Score);
  Add(&GpuStepKernels::BeginSlice);
  Add(&GpuStepKernels::SlicePart);
}

// --- layers

absl::Status GpuStepKernels::Begin(DeviceStream, void* on, const BeginArguments& a) {
  const StepCounts counts{a.n_rows, a.n_pieces, a.n_logits, a.n_scored};
  return device_.Check(
      device_.api().model.begin(model_, a.block, a.sampled, &counts, a.state.kv, on),
      "beginning a step");
}

absl::Status GpuStepKernels::Layer(DeviceStream, void* on, const LayerArguments& a) {
  return device_.Check(device_.api().model.layer(model_, a.layer, a.logits, on), "a layer");
}

absl::Status GpuStepKernels::ScoredLogits(DeviceStream, void* on, const ScoredLogitsArguments& a) {
  return device_.Check(device_.api().model.scored_logits(model_, a.from, a.to, a.logits, on),
                       "logits");
}

absl::Status GpuStepKernels::BeginSlice(DeviceStream, void* on, const BeginSliceArguments& a) {
  const StepCounts counts{a.n_rows, 1, a.n_logits, 0};
  return device_.Check(device_.api().model.begin_slice(model_, a.block, &counts, a.state.kv, on),
                       "beginning a slice");
}

absl::Status GpuStepKernels::SlicePart(DeviceStream, void* on, const SlicePartArguments& a) {
  BATON_CHECK(a.part != SlicePartArguments::kAttend);  // StepLimits::slice_keys is 0
  if (a.part == SlicePartArguments::kProject) {
    return device_.Check(device_.api().model.project_slice(model_, a.layer, a.from, a.to, on),
                         "a slice's keys");
  }
  return device_.Check(
      device_.api().model.finish_slice(model_, a.layer, a.from, a.to, a.logits, on),
      "a slice's layer");
}

// --- sampling

bool GpuStepKernels::IsPlain(const RowSampling& row) const {
  if (row.sampling == nullptr) return true;
  const SamplingParams& params = row.sampling->params();
  if (row.wants_digest || row.sampling->ChangesLogits() || params.top_logprobs > 0 ||
      !params.logprob_tokens.empty()) {
    return false;
  }
  if (params.temperature <= 0) return true;
  const size_t drawable = row.sampling->DrawableOf(static_cast<size_t>(vocab_));
  const bool cuts = params.top_k > 0 && static_cast<size_t>(params.top_k) < drawable;
  return !cuts && params.top_p >= 1 && params.min_p <= 0;
}

absl::StatusOr<GpuStepKernels::Staging*> GpuStepKernels::Take(int64_t bytes) {
  for (const std::unique_ptr<Staging>& staging : staging_)
    if (staging->bytes >= bytes && device_.reached(staging->end)) return staging.get();
  auto made = std::make_unique<Staging>();
  made->bytes = kMinStaging;
  while (made->bytes < bytes) made->bytes *= 2;
  made->end = device_.NewEvent();
  ASSIGN_OR_RETURN(made->at, device_.AllocatePinned(made->bytes, "parameters of sampling"));
  staging_.push_back(std::move(made));
  return staging_.back().get();
}

absl::Status GpuStepKernels::Sample(DeviceStream stream, void* on, const SampleArguments& a) {
  if (a.n == 0) return absl::OkStatus();
  const auto n = static_cast<int64_t>(a.n);
  // Parameters, then records and tokens of the rows that the host samples.
  const int64_t rows_bytes = n * int64_t{sizeof(SampleRowArguments)};
  const int64_t token_at = rows_bytes + (a.result_bytes + 7) / 8 * 8;
  ASSIGN_OR_RETURN(Staging* const staging, Take(token_at + n * int64_t{sizeof(int32_t)}));
  auto* const rows = reinterpret_cast<SampleRowArguments*>(staging->at);
  std::byte* const records = staging->at + rows_bytes;
  auto* const tokens = reinterpret_cast<int32_t*>(staging->at + token_at);

  std::vector<int64_t> record_at(static_cast<size_t>(n) + 1);
  bool has_plain = false;
  for (int64_t i = 0; i < n; ++i) {
    const RowSampling& row = a.rows[i];
    const int64_t at = record_at[static_cast<size_t>(i)];
    record_at[static_cast<size_t>(i) + 1] = at + SampledBytes(std::span(&row, 1));
    rows[i] = {};
    if (row.sampling == nullptr || !IsPlain(row)) continue;  // its token becomes -1
    has_plain = true;
    // Records of plain rows are all of one size, but those before need not be.
    BATON_CHECK(at % 8 == 0);
    rows[i].temperature = row.sampling->params().temperature;
    rows[i].seed = row.sampling->params().seed;
    rows[i].position = row.position;
    rows[i].drawable = static_cast<int32_t>(row.sampling->DrawableOf(static_cast<size_t>(vocab_)));
    rows[i].result = static_cast<int32_t>(at / 8);
  }
  if (has_plain || a.sampled != nullptr) {
    RETURN_IF_ERROR(
        device_.Check(device_.api().model.sample(a.logits, a.n, static_cast<int32_t>(vocab_), rows,
                                                 scratch_, a.results, a.sampled, on),
                      "sampling"));
  }
  for (int from = 0; from < a.n;) {
    if (IsPlain(a.rows[from])) {
      ++from;
      continue;
    }
    int to = from + 1;
    while (to < a.n && to - from < kRowsAtOnce && !IsPlain(a.rows[to])) ++to;
    const int64_t at = record_at[static_cast<size_t>(from)];
    RETURN_IF_ERROR(SampleOnHost(stream, a, from, to, records + at, tokens + from, a.results + at));
    from = to;
  }
  return device_.Record(staging->end, stream);
}

absl::Status GpuStepKernels::OnHost(DeviceStream stream, std::function<void(Sampler&)> call) {
  return device_.Notify(stream, [&device = device_, host = host_, call = std::move(call)] {
    const std::lock_guard lock(host->mutex);
    if (host->is_over || device.lost()) return;  // nobody reads what it would write
    const NumericsMxcsrScope numerics;
    call(host->sampler);
  });
}

absl::Status GpuStepKernels::SampleOnHost(DeviceStream stream, const SampleArguments& a, int from,
                                          int to, std::byte* records, int32_t* tokens,
                                          std::byte* results) {
  const int64_t width = vocab_ * int64_t{sizeof(float)};
  RETURN_IF_ERROR(device_.Copy(stream, logits_,
                               reinterpret_cast<const std::byte*>(a.logits) + from * width,
                               (to - from) * width));
  // A copy, since the device may be lost, and the rows gone, while they are sampled.
  const std::vector<RowSampling> rows(a.rows + from, a.rows + to);
  RETURN_IF_ERROR(OnHost(stream, [this, rows, records, tokens](Sampler& sampler) {
    const auto vocab = static_cast<size_t>(vocab_);
    std::vector<SampleRow> asked;
    for (size_t i = 0; i < rows.size(); ++i) {
      const float* const logits = reinterpret_cast<const float*>(logits_) + i * vocab;
      asked.push_back({{logits, vocab}, rows[i].sampling.get(), rows[i].position});
    }
    std::vector<SampledToken> sampled(rows.size());
    sampler.SampleRows(asked, sampled);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].wants_digest) sampled[i].digest = LogitsDigest(asked[i].logits, 0);
      tokens[i] = sampled[i].token;
    }
    WriteSampled(rows, sampled, records);
  }));
  RETURN_IF_ERROR(device_.Copy(stream, results, records, SampledBytes(rows)));
  if (a.sampled == nullptr) return absl::OkStatus();
  return device_.Copy(stream, reinterpret_cast<std::byte*>(a.sampled + from),
                      reinterpret_cast<const std::byte*>(tokens),
                      (to - from) * int64_t{sizeof(int32_t)});
}

absl::Status GpuStepKernels::Score(DeviceStream stream, void*, const ScoreArguments& a) {
  BATON_CHECK(a.n <= kRowsAtOnce);
  ASSIGN_OR_RETURN(Staging* const staging, Take(a.result_bytes));
  RETURN_IF_ERROR(device_.Copy(stream, logits_, reinterpret_cast<const std::byte*>(a.logits),
                               a.n * vocab_ * int64_t{sizeof(float)}));
  const auto score = [this, top = a.top, end = static_cast<size_t>(a.end), records = staging->at,
                      tokens = std::vector<int32_t>(a.tokens, a.tokens + a.n)](Sampler& sampler) {
    std::vector<PromptLogprob> scored(tokens.size());
    sampler.ScoreRows(
        {reinterpret_cast<const float*>(logits_), tokens.size() * static_cast<size_t>(vocab_)},
        tokens, top, end, scored);
    WriteScored(scored, top, records);
  };
  RETURN_IF_ERROR(OnHost(stream, score));
  RETURN_IF_ERROR(device_.Copy(stream, a.results, staging->at, a.result_bytes));
  return device_.Record(staging->end, stream);
}

}  // namespace baton
