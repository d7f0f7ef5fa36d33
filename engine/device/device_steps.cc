#include "engine/device/device_steps.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "engine/device/metadata_block.h"
#include "engine/device/sampled_results.h"

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
  RETURN_IF_ERROR(allocate(MaxCounts(rows, rows, max_pages).bytes(), "metadata block", &block_));
  RETURN_IF_ERROR(allocate(MaxCounts(limits.max_slice_tokens, 1, max_pages).bytes(),
                           "metadata block of slices", &slice_block_));
  RETURN_IF_ERROR(allocate(kActivationBytes, "activations", &state_.activations));
  std::byte* sampled = nullptr;
  RETURN_IF_ERROR(allocate(rows * int64_t{sizeof(int32_t)}, "sampled tokens", &sampled));
  sampled_ = reinterpret_cast<int32_t*>(sampled);
  RETURN_IF_ERROR(allocate_floats(rows, "logits", Logits::kStep));
  RETURN_IF_ERROR(allocate_floats(Backend::kScoredAtOnce, "scored logits", Logits::kScored));
  return allocate_floats(1, "logits of slices", Logits::kSlice);
}

void DeviceSteps::SetPages(std::byte* kv, int n_pages) {
  state_.kv = kv;
  state_.n_pages = n_pages + 1;
  graphs_.clear();  // they have the old address
}

bool DeviceSteps::IsTaken(const absl::Status& status) {
  timeline_.Check(status);
  return status.ok();
}

// --- steps

void DeviceSteps::Upload(const StepBatch& batch, int padding, std::byte* to) {
  const Padding rows{padding, static_cast<int32_t>(state_.n_pages - 1)};
  const int64_t bytes = CountsOf(batch, rows).bytes();
  absl::StatusOr<Slot*> slot = pinned_.Take(bytes);
  if (!IsTaken(slot.status())) return;
  device_.HostWrites((*slot)->at, bytes);
  WriteBlock(batch, rows, (*slot)->at);
  IsTaken(device_.Copy(compute_, to, (*slot)->at, bytes));
  timeline_.Submitted([this, slot = *slot] { pinned_.Give(slot); });
}

void DeviceSteps::Begin(const StepBatch& batch) {
  const int n = batch.n_tokens();
  const bool is_rows = uses_graphs_ && IsRows(batch);
  step_.bucket = is_rows ? BucketOf(n, model_.limits.max_step_tokens) : 0;
  step_.n_rows = std::max(n, step_.bucket);
  Upload(batch, step_.n_rows - n, block_);
}

void DeviceSteps::RunLayers(int from, int to) {
  IsTaken(step_.bucket > 0 ? LaunchGraph(from, to) : LaunchLayers(from, to));
  timeline_.Submitted();
}

absl::Status DeviceSteps::LaunchLayers(int from, int to) {
  if (from == 0) {
    RETURN_IF_ERROR(device_.Launch(compute_, BeginArguments::kName,
                                   BeginArguments{block_, sampled_, state_, step_.n_rows}));
  }
  for (int layer = from; layer < to; ++layer) {
    RETURN_IF_ERROR(device_.Launch(compute_, LayerArguments::kName,
                                   LayerArguments{state_, layer, At(Logits::kStep)}));
  }
  return absl::OkStatus();
}

absl::Status DeviceSteps::LaunchGraph(int from, int to) {
  const auto [graph, is_new] = graphs_.try_emplace({step_.bucket, from, to});
  if (is_new) {
    RETURN_IF_ERROR(device_.BeginCapture(compute_));
    const absl::Status captured = LaunchLayers(from, to);
    absl::StatusOr<DeviceGraph> made = device_.EndCapture(compute_);
    RETURN_IF_ERROR(captured);
    ASSIGN_OR_RETURN(graph->second, std::move(made));
  }
  return device_.LaunchGraph(compute_, graph->second);
}

// --- sampling

absl::Status DeviceSteps::Return(Slot* results, int64_t bytes,
                                 std::function<void(const std::byte*)> read) {
  ASSIGN_OR_RETURN(Slot* const host, pinned_.Take(bytes));
  const absl::Status copied = device_.Copy(compute_, host->at, results->at, bytes);
  timeline_.Submitted([this, host, results, bytes, read = std::move(read)] {
    if (!timeline_.lost()) {
      device_.HostReads(host->at, bytes);
      read(host->at);
    }
    pinned_.Give(host);
    results_.Give(results);
  });
  return copied;
}

void DeviceSteps::Sample(std::span<const RowSampling> rows, StepOutput* out) {
  out->sampled.clear();
  const absl::Status status = SampleRows(Logits::kStep, rows, out);
  if (!IsTaken(status)) timeline_.Submitted();  // so that there is a fence, and no result
}

void DeviceSteps::SampleSlice(const RowSampling& row, StepOutput* out) {
  out->sampled.clear();
  if (!IsTaken(SampleRows(Logits::kSlice, std::span(&row, 1), out))) timeline_.Submitted();
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
  RETURN_IF_ERROR(device_.Launch(compute_, SampleArguments::kName, arguments));
  if (bytes > 0) {
    return Return(results, bytes, [kept, out](const std::byte* bytes_of_rows) {
      out->sampled = ReadSampled(*kept, bytes_of_rows);
    });
  }
  timeline_.Submitted([this, kept, results, out] {  // nobody reads a token
    if (!timeline_.lost()) out->sampled.assign(kept->size(), {});
    results_.Give(results);
  });
  return absl::OkStatus();
}

void DeviceSteps::ScoreLogits(int from, int to) {
  IsTaken(device_.Launch(compute_, ScoredLogitsArguments::kName,
                         ScoredLogitsArguments{state_, from, to, At(Logits::kScored)}));
}

void DeviceSteps::Score(const ScoredRows& rows, std::span<PromptLogprob> out) {
  ScoreLogits(rows.first, rows.first + static_cast<int>(rows.tokens.size()));
  if (!IsTaken(ScoreRows(rows, out))) timeline_.Submitted();
}

absl::Status DeviceSteps::ScoreRows(const ScoredRows& rows, std::span<PromptLogprob> out) {
  const auto tokens =
      std::make_shared<const std::vector<int32_t>>(rows.tokens.begin(), rows.tokens.end());
  const int64_t bytes = ScoredBytes(static_cast<int>(tokens->size()), rows.top);
  ASSIGN_OR_RETURN(Slot* const results, results_.Take(bytes));
  ScoreArguments arguments{.logits = At(Logits::kScored), .tokens = tokens->data()};
  arguments.n = static_cast<int32_t>(tokens->size());
  arguments.top = rows.top;
  arguments.end = static_cast<int64_t>(rows.end);
  arguments.results = results->at;
  arguments.result_bytes = bytes;
  RETURN_IF_ERROR(device_.Launch(compute_, ScoreArguments::kName, arguments));
  return Return(results, bytes, [tokens, top = rows.top, out](const std::byte* bytes_of_rows) {
    ReadScored(out, top, bytes_of_rows);
  });
}

// --- slices

void DeviceSteps::BeginSlice(const StepBatch& batch) {
  Upload(batch, 0, slice_block_);
  IsTaken(device_.Launch(compute_, BeginSliceArguments::kName,
                         BeginSliceArguments{slice_block_, state_}));
  timeline_.Submitted();
}

void DeviceSteps::RunPart(SlicePartArguments part, bool wants_logits) {
  part.state = state_;
  part.logits = wants_logits ? At(Logits::kSlice) : nullptr;
  IsTaken(device_.Launch(compute_, SlicePartArguments::kName, part));
  timeline_.Submitted();
}

// --- logits

void DeviceSteps::Read(Logits which, int rows, std::vector<float>* to) {
  to->assign(static_cast<size_t>(rows) * static_cast<size_t>(model_.desc->vocab), 0);
  const int64_t bytes = static_cast<int64_t>(to->size() * sizeof(float));
  absl::StatusOr<Slot*> slot = pinned_.Take(bytes);
  if (!IsTaken(slot.status())) return;
  IsTaken(
      device_.Copy(compute_, (*slot)->at, reinterpret_cast<const std::byte*>(At(which)), bytes));
  timeline_.Submitted();
  timeline_.Finish();
  device_.HostReads((*slot)->at, bytes);
  std::memcpy(to->data(), (*slot)->at, static_cast<size_t>(bytes));
  pinned_.Give(*slot);
}

}  // namespace baton
