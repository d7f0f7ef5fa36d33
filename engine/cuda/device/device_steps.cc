#include "engine/cuda/device/device_steps.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "engine/cuda/device/metadata_block.h"
#include "engine/cuda/device/sampled_results.h"

namespace baton {
namespace {

constexpr int kBuckets[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256};

// Only rows: each is a sequence's one token, and has logits.
bool IsRows(const StepBatch& batch) {
  return batch.n_pieces() == batch.n_tokens() && batch.scored_rows.empty() &&
         batch.logit_rows.size() == batch.tokens.size();
}

// Rows as a kernel may read them later: a share of what looks back, which does not change before
// the row's token is known, and a copy of the parameters of all else.
std::vector<RowSampling> Kept(std::span<const RowSampling> rows) {
  std::vector<RowSampling> kept(rows.begin(), rows.end());
  for (RowSampling& row : kept) {
    if (row.sampling != nullptr && !row.sampling->LooksBack())
      row.sampling = std::make_shared<const SequenceSampling>(row.sampling->params());
  }
  return kept;
}

}  // namespace

int BucketOf(int rows, int max_rows) {
  const auto* const bucket = std::lower_bound(std::begin(kBuckets), std::end(kBuckets), rows);
  return bucket == std::end(kBuckets) || *bucket > max_rows ? 0 : *bucket;
}

DeviceSteps::DeviceSteps(Device& device, const DeviceModel& model, bool uses_graphs)
    : device_(device),
      model_(model),
      uses_graphs_(uses_graphs),
      compute_(device.NewStream("compute")),
      timeline_(device, compute_),
      pinned_(device, SlotPool::Kind::kPinned, "staging"),
      results_(device, SlotPool::Kind::kDevice, "results") {}

DeviceSteps::~DeviceSteps() {
  timeline_.Finish();
  for (std::byte* const memory : fixed_) device_.Free(memory);
}

absl::Status DeviceSteps::Reserve() {
  const StepLimits& limits = model_.limits;
  const int max_pages = model_.layout.PagesFor(model_.desc->max_positions);
  const int64_t row = model_.desc->vocab * int64_t{sizeof(float)};
  const auto allocate = [&](int64_t bytes, std::string_view what, std::byte** to) -> absl::Status {
    ASSIGN_OR_RETURN(*to, device_.Allocate(bytes, what));
    fixed_.push_back(*to);
    return absl::OkStatus();
  };
  const auto allocate_floats = [&](int64_t rows, std::string_view what, Logits which) {
    std::byte* at = nullptr;
    const absl::Status status = allocate(rows * row, what, &at);
    logits_[static_cast<size_t>(which)] = reinterpret_cast<float*>(at);
    return status;
  };
  const int rows = limits.max_step_tokens;
  RETURN_IF_ERROR(
      allocate(MaxCounts(rows, rows, max_pages, model_.layout).bytes(), "metadata block", &block_));
  RETURN_IF_ERROR(allocate(MaxCounts(limits.max_slice_tokens, 1, max_pages, model_.layout).bytes(),
                           "metadata block of slices", &slice_block_));
  RETURN_IF_ERROR(allocate(kActivationBytes, "activations", &state_.activations));
  std::byte* sampled = nullptr;
  RETURN_IF_ERROR(allocate(rows * int64_t{sizeof(int32_t)}, "sampled tokens", &sampled));
  sampled_ = reinterpret_cast<int32_t*>(sampled);
  RETURN_IF_ERROR(allocate_floats(rows, "logits", Logits::kStep));
  RETURN_IF_ERROR(allocate_floats(Backend::kScoredAtOnce, "scored logits", Logits::kScored));
  return allocate_floats(1, "logits of slices", Logits::kSlice);
}

void DeviceSteps::SetPages(const KvPages& pages) {
  pages_ = pages;
  state_.kv = pages.base;
  state_.n_pages = pages.n_pages + 1;
  state_.n_page_ids = pages.n_ids + 1;
  graphs_.clear();  // they have the old address
}

template <typename Call>
void DeviceSteps::Submit(const Call& call) {
  deliver_ = nullptr;
  if (!timeline_.lost()) timeline_.Check(call());
  timeline_.Submitted(std::move(deliver_));
}

// --- steps

absl::Status DeviceSteps::Upload(const StepBatch& batch, int padding, std::byte* to) {
  const int64_t bytes = CountsOf(batch, padding, model_.layout).bytes();
  ASSIGN_OR_RETURN(Slot* const slot, pinned_.Take(bytes));
  deliver_ = [this, slot] { pinned_.Give(slot); };
  device_.HostWrites(slot->at, bytes);
  WriteBlock(batch, padding, pages_, slot->at);
  return device_.Copy(compute_, to, slot->at, bytes);
}

void DeviceSteps::Begin(const StepBatch& batch) {
  const int n = batch.n_tokens();
  const bool is_rows = uses_graphs_ && IsRows(batch);
  step_.bucket = is_rows ? BucketOf(n, model_.limits.max_step_tokens) : 0;
  const int padding = std::max(step_.bucket - n, 0);
  step_.counts = CountsOf(batch, padding, model_.layout);
  Submit([&] { return Upload(batch, padding, block_); });
}

void DeviceSteps::RunLayers(int from, int to) {
  Submit([&] { return step_.bucket > 0 ? LaunchGraph(from, to) : LaunchLayers(from, to); });
}

absl::Status DeviceSteps::LaunchLayers(int from, int to) {
  if (from == 0) {
    const BlockCounts& counts = step_.counts;
    const BeginArguments begin{block_,          sampled_,        state_,         counts.n_tokens,
                               counts.n_pieces, counts.n_logits, counts.n_scored};
    RETURN_IF_ERROR(device_.Launch(compute_, BeginArguments::kName, begin));
  }
  for (int layer = from; layer < to; ++layer) {
    RETURN_IF_ERROR(device_.Launch(compute_, LayerArguments::kName,
                                   LayerArguments{state_, layer, At(Logits::kStep)}));
  }
  return absl::OkStatus();
}

absl::Status DeviceSteps::LaunchGraph(int from, int to) {
  const GraphKey key{step_.bucket, from, to};
  auto graph = graphs_.find(key);
  if (graph == graphs_.end()) {
    // A run of layers that begins in the middle is captured in the step that captured those before
    // it: kernels of a device keep the counts of the step that began last.
    RETURN_IF_ERROR(device_.BeginCapture(compute_));
    const absl::Status captured = LaunchLayers(from, to);
    absl::StatusOr<DeviceGraph> made = device_.EndCapture(compute_);
    RETURN_IF_ERROR(captured);
    RETURN_IF_ERROR(made.status());
    graph = graphs_.emplace(key, *made).first;
  }
  return device_.LaunchGraph(compute_, graph->second);
}

// --- sampling

absl::Status DeviceSteps::Return(const std::byte* from, int64_t bytes,
                                 std::function<void(const std::byte*)> read, Slot* results) {
  ASSIGN_OR_RETURN(Slot* const host, pinned_.Take(bytes));
  deliver_ = [this, host, results, bytes, read = std::move(read)] {
    if (!timeline_.lost()) {
      device_.HostReads(host->at, bytes);
      read(host->at);
    }
    pinned_.Give(host);
    if (results != nullptr) results_.Give(results);
  };
  return device_.Copy(compute_, host->at, from, bytes);
}

void DeviceSteps::Sample(std::span<const RowSampling> rows, StepOutput* out) {
  out->sampled.clear();
  Submit([&] { return SampleRows(Logits::kStep, rows, out); });
}

void DeviceSteps::SampleSlice(const RowSampling& row, StepOutput* out) {
  out->sampled.clear();
  Submit([&] { return SampleRows(Logits::kSlice, std::span(&row, 1), out); });
}

absl::Status DeviceSteps::SampleRows(Logits which, std::span<const RowSampling> rows,
                                     StepOutput* out) {
  const auto kept = std::make_shared<const std::vector<RowSampling>>(Kept(rows));
  const int64_t bytes = SampledBytes(*kept);
  ASSIGN_OR_RETURN(Slot* const results, results_.Take(bytes));
  SampleArguments arguments{.logits = At(which), .rows = kept->data()};
  arguments.n = static_cast<int32_t>(kept->size());
  arguments.sampled = which == Logits::kStep ? sampled_ : nullptr;
  arguments.results = results->at;
  arguments.result_bytes = bytes;
  deliver_ = [this, kept, results, out] {  // if nobody reads a token
    if (!timeline_.lost()) out->sampled.assign(kept->size(), {});
    results_.Give(results);
  };
  RETURN_IF_ERROR(device_.Launch(compute_, SampleArguments::kName, arguments));
  if (bytes == 0) return absl::OkStatus();
  const auto read = [kept, out](const std::byte* at) { out->sampled = ReadSampled(*kept, at); };
  return Return(results->at, bytes, read, results);
}

absl::Status DeviceSteps::LaunchScoredLogits(int from, int to) {
  return device_.Launch(compute_, ScoredLogitsArguments::kName,
                        ScoredLogitsArguments{state_, from, to, At(Logits::kScored)});
}

void DeviceSteps::ScoreLogits(int from, int to) {
  Submit([&] { return LaunchScoredLogits(from, to); });
}

void DeviceSteps::Score(const ScoredRows& rows, std::span<PromptLogprob> out) {
  Submit([&] { return ScoreRows(rows, out); });
}

absl::Status DeviceSteps::ScoreRows(const ScoredRows& rows, std::span<PromptLogprob> out) {
  const auto tokens =
      std::make_shared<const std::vector<int32_t>>(rows.tokens.begin(), rows.tokens.end());
  const auto n = static_cast<int32_t>(tokens->size());
  const int64_t bytes = ScoredBytes(n, rows.top);
  RETURN_IF_ERROR(LaunchScoredLogits(rows.first, rows.first + n));
  ASSIGN_OR_RETURN(Slot* const results, results_.Take(bytes));
  ScoreArguments arguments{.logits = At(Logits::kScored), .tokens = tokens->data(), .n = n};
  arguments.top = rows.top;
  arguments.end = static_cast<int64_t>(rows.end);
  arguments.results = results->at;
  arguments.result_bytes = bytes;
  deliver_ = [this, tokens, results] { results_.Give(results); };  // if the device is lost
  RETURN_IF_ERROR(device_.Launch(compute_, ScoreArguments::kName, arguments));
  const auto read = [tokens, top = rows.top, out](const std::byte* at) {
    ReadScored(out, top, at);
  };
  return Return(results->at, bytes, read, results);
}

// --- slices

void DeviceSteps::BeginSlice(const StepBatch& batch) {
  Submit([&]() -> absl::Status {
    RETURN_IF_ERROR(Upload(batch, 0, slice_block_));
    return device_.Launch(compute_, BeginSliceArguments::kName,
                          BeginSliceArguments{slice_block_, state_, batch.n_tokens(),
                                              static_cast<int32_t>(batch.logit_rows.size())});
  });
}

void DeviceSteps::RunPart(SlicePartArguments part, bool wants_logits) {
  part.state = state_;
  part.logits = wants_logits ? At(Logits::kSlice) : nullptr;
  Submit([&] { return device_.Launch(compute_, SlicePartArguments::kName, part); });
}

// --- logits

void DeviceSteps::Read(Logits which, int rows, std::vector<float>* to) {
  to->assign(static_cast<size_t>(rows) * static_cast<size_t>(model_.desc->vocab), 0);
  const auto bytes = static_cast<int64_t>(to->size() * sizeof(float));
  Submit([&] {
    return Return(reinterpret_cast<const std::byte*>(At(which)), bytes,
                  [to, bytes](const std::byte* at) {
                    std::memcpy(to->data(), at, static_cast<size_t>(bytes));
                  });
  });
  timeline_.Finish();
}

}  // namespace baton
