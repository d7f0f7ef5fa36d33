// A PrefillScheduler on the hash engine; collects its effects.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lab/whole_planes.h"
#include "prefill_worker/prefill_scheduler.h"
#include "tests/support/hash_backend.h"
#include "tests/support/prefill_parts.h"
#include "tests/support/sequential_run.h"

namespace baton {

// kPeer has a lower order than kSelf, so kSelf takes pages only after kPeer's promise.
inline constexpr Incarnation kSelf = 5, kPeer = 2, kHighPeer = 9;
inline constexpr int kPageTokens = 4;

// How a worker computes and passes on slices of relays.
struct RankOptions {
  int slice_keys = kSliceKeys;
  bool whole_planes = false;  // cells go to the next rank a plane at a time
  TransitionCounts* transitions = nullptr;
  int max_slice_tokens = 8192;
};

// A scheduler on its backend; steps run in one go or layer by layer.
struct SchedulerFixture {
  explicit SchedulerFixture(int n_pages = 200, int chunk = 0, int open_ahead = 4,
                            TransitionCounts* transitions = nullptr, bool reuse_kv = true,
                            const std::vector<int>& windows = {}, const RopeDesc& rope = {},
                            const RankOptions& rank = {})
      : backend(kPageTokens, 3, windows, rope) {
    backend.set_limits({.slice_keys = rank.slice_keys});
    if (rank.whole_planes) filter = std::make_unique<WholePlanes>();
    PrefillOptions options;
    options.transitions = transitions;
    options.chunk_tokens = chunk;
    options.open_ahead = open_ahead;
    options.max_prompts = 50;
    pool = std::move(*KvPool::Create(backend.kv_layout(), n_pages));
    backend.SetPages(pool->pages());
    const PrefillFacts facts{
        .self = kSelf,
        .max_context = 1000,
        .model = &backend.model(),
        .limits = {.max_slice_tokens = rank.max_slice_tokens, .slice_keys = rank.slice_keys}};
    if (reuse_kv) index.emplace(pool.get());
    scheduler =
        std::make_unique<PrefillScheduler>(options, facts, pool.get(), index ? &*index : nullptr);
  }
  ~SchedulerFixture() {
    while (scheduler->prompts().pages().DiscardOldest()) {
    }
  }

  static PrefillRequest Request(RequestId id, int n_tokens, Incarnation sink = 0) {
    PrefillRequest request;
    request.request_id = id;
    request.epoch = 1;
    for (int i = 0; i < n_tokens; ++i)
      request.tokens.push_back(static_cast<int32_t>((id * 31 + i * 7) % HashBackend::kVocab));
    request.sampling.temperature = 0;
    Ticket ticket{.id = {.high = 0, .low = id},
                  .epoch = 1,
                  .request_id = id,
                  .sink = sink,
                  .promise = {.high = 0, .low = id},
                  .kv_pages = (n_tokens + kPageTokens - 1) / kPageTokens};
    ticket.promise_pages = ticket.kv_pages + 2;
    ticket.n_pages = ticket.kv_pages;
    SetWhole(&request, ticket, {.incarnation = sink, .address = "peer:1"});
    return request;
  }
  void Admit(PrefillRequest request) { scheduler->prompts().Admit(std::move(request), now); }

  // Runs a step and a block of the slice; returns the computed tokens and rows.
  int Step(int budget, int layers = 1) { return ChunkStep(budget, layers) + Block(budget); }
  int ChunkStep(int budget, int layers = 1) {
    builder.Clear();
    const int n = scheduler->Contribute({.tokens = budget}, 0, now, &builder);
    if (n > 0) {
      now += absl::Milliseconds(10);
      backend.Begin(builder.batch());
      for (int from = 0; from < 3; from += layers) {
        backend.RunLayers(from, std::min(3, from + layers));
        scheduler->LayersDone(std::min(3, from + layers));
      }
      FinishStep();
    }
    Collect();
    return n;
  }
  // When all layers have run.
  void FinishStep() {
    std::vector<RowSampling> sampling;
    StepOutput out;
    scheduler->StepSubmitted(now);
    scheduler->AddSampling(&sampling);
    backend.Sample(sampling, &out);
    scheduler->Score(&backend);
    scheduler->StepDone(out.sampled, now);
  }
  int Block(int max_rows) {
    const std::optional<SliceBlock> block = scheduler->NextBlock(max_rows);
    if (!block) return 0;
    now += absl::Milliseconds(10);
    scheduler->Compute(*block, &backend);
    blocks.push_back(*block);
    StepOutput out;
    const SubmittedBlock submitted = scheduler->BlockSubmitted(*block, &backend, &out, now);
    scheduler->BlockDone(submitted, &out, absl::Milliseconds(1), now);
    Collect();
    return block->to - block->from;
  }
  void Collect() {
    for (PrefillEffect& effect : scheduler->TakeEffects()) {
      if (auto* command = std::get_if<TransferCommand>(&effect)) {
        const auto post = [this](const TransferCommand& passed) { Take(passed); };
        if (filter == nullptr)
          post(*command);
        else
          filter->OnCommand(*command, post);
      } else if (auto* event = std::get_if<WorkerEvent>(&effect)) {
        if (auto* token = std::get_if<TokenOut>(event)) tokens.push_back(*token);
        if (auto* told = std::get_if<PromptLogprobs>(event)) scores.push_back(*told);
        if (auto* done = std::get_if<PromptComputed>(event)) computed[done->request_id] = *done;
        if (auto* part = std::get_if<PartEnded>(event)) ends[part->request_id] = *part;
        if (std::holds_alternative<NoRoomNotice>(*event)) ++no_room;
      } else {
        kept.push_back(std::get<HandoffArrived>(effect));
      }
    }
    REQUIRE(pool->held() + pool->shared() == scheduler->prompts().pages_held() + KeptPages());
  }
  void Take(const TransferCommand& command) {
    if (auto* open = std::get_if<OpenHandoff>(&command)) opens.push_back(open->ticket.id.low);
    if (auto* cells = std::get_if<SendCells>(&command)) sent.push_back(*cells);
    if (auto* commit = std::get_if<CommitHandoff>(&command)) commits.push_back(*commit);
    if (auto* await = std::get_if<AwaitInflow>(&command)) awaits.push_back(*await);
    if (auto* cancel = std::get_if<CancelHandoff>(&command)) cancels.push_back(*cancel);
  }
  int KeptPages() const {
    int n = 0;
    for (const HandoffArrived& k : kept) n += CountPages(k.pages);
    return n;
  }
  static TicketId Id(RequestId id) { return {.high = 0, .low = id}; }
  void Promise(RequestId id) { scheduler->prompts().On(HandoffPromised{.ticket_id = Id(id)}, now); }
  void NoRoom(RequestId id, int64_t expected_wait_us = 0) {
    scheduler->prompts().On(
        HandoffNoRoom{.ticket_id = Id(id), .expected_wait_us = expected_wait_us}, now);
  }
  void EndHandoff(RequestId id, absl::Status status = absl::OkStatus()) {
    End({.ticket_id = Id(id), .status = std::move(status), .transfer_us = 5});
  }
  void End(const HandoffEnded& event) {
    if (filter != nullptr) filter->OnEvent(event);
    scheduler->prompts().On(event, now);
    Collect();
  }

  // Advances the time until slices of broken attempts are no longer kept.
  void ForgetKept() {
    while (scheduler->prompts().NextDeadline() < now + absl::Minutes(1)) {
      now = scheduler->prompts().NextDeadline();
      scheduler->prompts().OnTime(now);
    }
    Collect();
  }

  HashBackend backend;
  std::unique_ptr<KvPool> pool;
  std::optional<PrefixIndex> index;
  std::unique_ptr<PrefillScheduler> scheduler;
  std::unique_ptr<WholePlanes> filter;  // of the commands; null: none
  StepBuilder builder;
  absl::Time now = absl::UnixEpoch();
  std::vector<RequestId> opens;
  std::vector<SendCells> sent;
  std::vector<SliceBlock> blocks;
  std::vector<CommitHandoff> commits;
  std::vector<CancelHandoff> cancels;
  std::vector<AwaitInflow> awaits;
  std::vector<TokenOut> tokens;
  std::vector<PromptLogprobs> scores;
  std::map<RequestId, PromptComputed> computed;
  std::map<RequestId, PartEnded> ends;
  std::vector<HandoffArrived> kept;
  int no_room = 0;
};

}  // namespace baton
