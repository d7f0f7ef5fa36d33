#include "tests/support/local_engine.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "engine/load_backend.h"
#include "engine/sampling/sequence_sampling.h"

namespace baton {

struct LocalEngine::Sequence {
  const LocalRequest* request = nullptr;
  Generation result;
  std::optional<SequenceSampling> sampling;
  std::vector<int32_t> tokens;  // prompt and generated
  std::vector<int32_t> pages;
  RopeRange rope = RopeRange::kShort;
  int n_computed = 0;     // positions whose KV is in the pool
  int logits_index = -1;  // of this step; -1 = none wanted
  bool is_finished = false;
};

LocalEngine::LocalEngine(std::unique_ptr<Backend> backend, int max_step_tokens,
                         std::unique_ptr<KvPool> pool)
    : backend_(std::move(backend)), pool_(std::move(pool)), max_step_tokens_(max_step_tokens) {
  backend_->SetPages(pool_->pages());
}

absl::StatusOr<std::unique_ptr<LocalEngine>> LocalEngine::Create(const EngineOptions& options,
                                                                 int n_pages) {
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, LoadBackend(options));
  return Create(std::move(backend), options.limits.max_step_tokens, n_pages);
}

absl::StatusOr<std::unique_ptr<LocalEngine>> LocalEngine::Create(std::unique_ptr<Backend> backend,
                                                                 int max_step_tokens, int n_pages) {
  ASSIGN_OR_RETURN(std::unique_ptr<KvPool> pool,
                   KvPool::Create(backend->kv_layout(), n_pages,
                                  [&](int64_t bytes) { return backend->NewArena(bytes); }));
  return std::unique_ptr<LocalEngine>(
      new LocalEngine(std::move(backend), max_step_tokens, std::move(pool)));
}

absl::Status LocalEngine::Check(const LocalRequest& request) const {
  const ModelDesc& model = backend_->model();
  const int64_t length = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (request.prompt.empty() || request.max_tokens < 1 || length > model.max_positions) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a prompt of %d tokens and %d new ones: both must be at least 1, together at most %d",
        request.prompt.size(), request.max_tokens, model.max_positions));
  }
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= model.vocab) {
      return absl::InvalidArgumentError(
          absl::StrFormat("token %d is outside the vocabulary of %d", token, model.vocab));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Generation>> LocalEngine::Generate(
    std::span<const LocalRequest> requests, int chunk) {
  std::vector<Sequence> sequences(requests.size());
  absl::Status status;
  for (size_t i = 0; i < requests.size() && status.ok(); ++i) {
    Sequence& sequence = sequences[i];
    sequence.request = &requests[i];
    status = Check(requests[i]);
    if (!status.ok()) break;
    sequence.tokens = requests[i].prompt;
    std::span<const int32_t> stops;
    if (!requests[i].ignore_eos) stops = backend_->model().eos_tokens;
    sequence.sampling.emplace(requests[i].sampling, stops, requests[i].prompt);
    const int max_total_tokens =
        static_cast<int>(requests[i].prompt.size()) + requests[i].max_tokens;
    sequence.rope = backend_->model().rope.RangeOf(max_total_tokens);
    const int n_pages = pool_->layout().PagesFor(max_total_tokens);
    if (!pool_->Take(n_pages, &sequence.pages)) {
      status = absl::ResourceExhaustedError(absl::StrFormat(
          "the KV pool of %d pages has no %d left for request %d", pool_->total(), n_pages, i));
    }
  }
  const auto is_finished = [](const Sequence& sequence) { return sequence.is_finished; };
  while (status.ok() && !std::all_of(sequences.begin(), sequences.end(), is_finished)) {
    RunStep(sequences, chunk);
  }
  std::vector<Generation> results;
  for (Sequence& sequence : sequences) {
    pool_->Give(sequence.pages);
    results.push_back(std::move(sequence.result));
  }
  if (!status.ok()) return status;
  return results;
}

absl::StatusOr<Generation> LocalEngine::Generate(const LocalRequest& request, int chunk) {
  ASSIGN_OR_RETURN(std::vector<Generation> results, Generate(std::span(&request, 1), chunk));
  return std::move(results[0]);
}

void LocalEngine::RunStep(std::vector<Sequence>& sequences, int chunk) {
  step_.Clear();
  for (Sequence& sequence : sequences) {
    sequence.logits_index = -1;
    const int room = max_step_tokens_ - step_.n_tokens();
    if (sequence.is_finished || room == 0) continue;
    const std::span<const int32_t> left = std::span(sequence.tokens).subspan(sequence.n_computed);
    int n = std::min<int>(static_cast<int>(left.size()), room);
    if (chunk > 0) n = std::min(n, chunk);
    const int first_row =
        step_.AddPiece(left.first(n), sequence.n_computed, sequence.pages, sequence.rope);
    sequence.n_computed += n;
    if (n == static_cast<int>(left.size())) {
      sequence.logits_index = step_.WantLogits(first_row + n - 1);
    }
  }
  backend_->Begin(step_.batch());
  backend_->RunLayers(0, backend_->model().n_layers);
  // The step's tokens are chosen here, from logits.
  backend_->Sample(std::vector<RowSampling>(step_.batch().logit_rows.size()), &output_);
  while (!backend_->reached(backend_->submitted())) std::this_thread::yield();
  for (Sequence& sequence : sequences) {
    if (sequence.logits_index >= 0) Accept(sequence, backend_->logits(sequence.logits_index));
  }
}

void LocalEngine::Accept(Sequence& sequence, std::span<const float> logits) {
  Generation& result = sequence.result;
  const LocalRequest& request = *sequence.request;
  const int64_t position = static_cast<int64_t>(sequence.tokens.size());
  const int32_t token = sampler_.Sample(logits, *sequence.sampling, position).token;
  sequence.sampling->Push(token);
  result.digests.push_back(
      LogitsDigest(logits, result.digests.empty() ? 0 : result.digests.back()));
  result.tokens.push_back(token);
  sequence.tokens.push_back(token);
  const std::vector<int32_t>& eos = backend_->model().eos_tokens;
  const bool is_stop = std::find(eos.begin(), eos.end(), token) != eos.end();
  if (static_cast<int>(result.tokens.size()) == request.max_tokens ||
      (is_stop && !request.ignore_eos)) {
    sequence.is_finished = true;
    result.last_logits.assign(logits.begin(), logits.end());
  }
}

}  // namespace baton
