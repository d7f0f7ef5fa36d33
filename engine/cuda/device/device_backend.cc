#include "engine/cuda/device/device_backend.h"

#include <utility>

#include "common/check.h"

namespace baton {
namespace {

// Pages of a device, with one more behind them for what padding writes.
class DeviceArena : public KvArena {
 public:
  DeviceArena(Device& device, DeviceSteps& steps, std::byte* base)
      : KvArena(base), device_(device), steps_(steps) {}
  ~DeviceArena() override {
    steps_.timeline().Finish();
    device_.Free(base());
  }
  void Zero(std::byte* at, int64_t n_bytes) override {
    steps_.timeline().Check(device_.Fill(steps_.compute(), at, 0, n_bytes));
    steps_.timeline().Submitted();
  }
  void Copy(std::byte* to, const std::byte* from, int64_t n_bytes) override {
    steps_.timeline().Check(device_.Copy(steps_.compute(), to, from, n_bytes));
    steps_.timeline().Submitted();
  }

 private:
  Device& device_;
  DeviceSteps& steps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceBackend>> DeviceBackend::Create(
    Device& device, DeviceModel model, const DeviceBackendOptions& options) {
  BATON_CHECK(options.depth >= 1);
  std::unique_ptr<DeviceBackend> backend(new DeviceBackend(device, std::move(model), options));
  RETURN_IF_ERROR(backend->steps_->Reserve());
  return backend;
}

DeviceBackend::DeviceBackend(Device& device, DeviceModel model, const DeviceBackendOptions& options)
    : device_(device),
      model_(std::move(model)),
      options_(options),
      steps_(std::make_unique<DeviceSteps>(device, model_, options.uses_graphs)),
      timeline_(steps_->timeline()) {}

void DeviceBackend::WakeAt(Fence fence, const std::function<void()>& wake) {
  timeline_.WakeAt(fence, wake);
}

// --- memory

absl::StatusOr<std::unique_ptr<KvArena>> DeviceBackend::NewArena(int64_t bytes) {
  ASSIGN_OR_RETURN(std::byte* const base,
                   device_.Allocate(bytes + model_.layout.page_bytes, "KV pages"));
  return std::make_unique<DeviceArena>(device_, *steps_, base);
}

void DeviceBackend::SetPages(const KvPages& pages) {
  BATON_CHECK(pages.layout->layout_id() == model_.layout.layout_id());
  steps_->SetPages(pages);
}

// --- steps

void DeviceBackend::Begin(const StepBatch& batch) {
  BATON_CHECK(steps_->has_pages() && is_sampled_);
  BATON_CHECK(batch.n_tokens() > 0 && batch.n_tokens() <= model_.limits.max_step_tokens);
  std::erase_if(sampled_, [this](Fence fence) { return reached(fence); });
  BATON_CHECK(static_cast<int>(sampled_.size()) < options_.depth);
  for (const int32_t token : batch.tokens)
    BATON_CHECK(!IsFed(token) || (options_.depth > 1 && LogitsOfFed(token) < n_logits_));
  is_sampled_ = false;
  n_logits_ = static_cast<int>(batch.logit_rows.size());
  n_scored_ = static_cast<int>(batch.scored_rows.size());
  next_layer_ = 0;
  step_copy_.clear();
  steps_->Begin(batch);
}

void DeviceBackend::RunLayers(int from, int to) {
  BATON_CHECK(from == next_layer_ && from <= to && to <= model_.desc->n_layers);
  next_layer_ = to;
  steps_->RunLayers(from, to);
}

void DeviceBackend::Sample(std::span<const RowSampling> rows, StepOutput* out) {
  BATON_CHECK(!is_sampled_ && next_layer_ == model_.desc->n_layers);
  BATON_CHECK(static_cast<int>(rows.size()) == n_logits_);
  is_sampled_ = true;
  steps_->Sample(rows, out);
  sampled_.push_back(submitted());
}

void DeviceBackend::Score(const ScoredRows& rows, std::span<PromptLogprob> out) {
  const auto n = static_cast<int>(rows.tokens.size());
  BATON_CHECK(is_sampled_ && n > 0 && n <= kScoredAtOnce && rows.first + n <= n_scored_);
  steps_->Score(rows, out);
}

// --- slices

void DeviceBackend::BeginSlice(const StepBatch& batch) {
  BATON_CHECK(steps_->has_pages() && batch.n_pieces() == 1 && batch.scored_rows.empty());
  BATON_CHECK(batch.n_tokens() <= model_.limits.max_slice_tokens);
  progress_.Begin(model_.desc->n_layers, batch.n_tokens(), model_.limits.max_step_tokens,
                  !batch.logit_rows.empty());
  slice_copy_.clear();
  steps_->BeginSlice(batch);
}

void DeviceBackend::ProjectSlice(int layer, int from, int to) {
  progress_.Project(layer, from, to);
  SlicePartArguments part{.part = SlicePartArguments::kProject};
  part.layer = layer, part.from = from, part.to = to;
  steps_->RunPart(part, false);
}

void DeviceBackend::AttendSlice(int layer, int from, int to, int end_key) {
  progress_.Attend(layer, from, to);
  SlicePartArguments part{.part = SlicePartArguments::kAttend};
  part.layer = layer, part.from = from, part.to = to, part.end_key = end_key;
  steps_->RunPart(part, false);
}

void DeviceBackend::FinishSlice(int layer, int from, int to) {
  progress_.Finish(layer, from, to);
  SlicePartArguments part{.part = SlicePartArguments::kFinish};
  part.layer = layer, part.from = from, part.to = to;
  steps_->RunPart(part, layer + 1 == model_.desc->n_layers && progress_.IsLogitRow(to));
}

void DeviceBackend::SampleSlice(const RowSampling& row, StepOutput* out) {
  BATON_CHECK(progress_.has_logits() && row.sampling != nullptr);
  steps_->SampleSlice(row, out);
}

// --- logits

std::span<const float> DeviceBackend::logits(int i) const {
  BATON_CHECK(i >= 0 && i < n_logits_ && next_layer_ == model_.desc->n_layers);
  if (step_copy_.empty()) steps_->Read(DeviceSteps::Logits::kStep, n_logits_, &step_copy_);
  const auto width = static_cast<size_t>(model_.desc->vocab);
  return std::span<const float>(step_copy_).subspan(static_cast<size_t>(i) * width, width);
}

std::span<const float> DeviceBackend::ScoredLogits(int from, int to) {
  BATON_CHECK(0 <= from && from < to && to <= n_scored_ && to - from <= kScoredAtOnce);
  BATON_CHECK(next_layer_ == model_.desc->n_layers);
  steps_->ScoreLogits(from, to);
  steps_->Read(DeviceSteps::Logits::kScored, to - from, &scored_copy_);
  return scored_copy_;
}

std::span<const float> DeviceBackend::slice_logits() const {
  BATON_CHECK(progress_.has_logits());
  if (slice_copy_.empty()) steps_->Read(DeviceSteps::Logits::kSlice, 1, &slice_copy_);
  return slice_copy_;
}

}  // namespace baton
