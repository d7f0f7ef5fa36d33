#include "tests/decode_worker/sim_cluster.h"

#include <catch2/catch.hpp>

#include "tests/support/prefill_parts.h"
#include "tests/support/sequential_run.h"

namespace baton {
namespace {
Incarnation IncarnationOf(int worker) { return 100 + static_cast<Incarnation>(worker); }
}  // namespace

SimCluster::SimCluster(uint64_t seed, int page_tokens, const std::vector<SimWorkerOptions>& workers)
    : random_(seed), reference_(page_tokens), transfer_(&random_) {
  transfer_.deliver = [this](int end, TransferEvent event) {
    workers_[end]->core->Handle(std::move(event));
    workers_[end]->awake = true;
  };
  transfer_.reached = [this](int end, uint64_t after) {
    return workers_[end]->backend->reached({after});
  };
  for (size_t i = 0; i < workers.size(); ++i) {
    const int index = static_cast<int>(i);
    auto worker = std::make_unique<SimWorker>();
    auto hash = std::make_unique<HashBackend>(page_tokens);
    hash->set_limits({.max_step_tokens = workers[i].max_step_tokens});
    worker->backend = std::move(hash);
    if (workers[i].depth > 0) {
      auto late = std::make_unique<LateBackend>(std::move(worker->backend), workers[i].depth);
      worker->late = late.get();
      worker->backend = std::move(late);
    }
    auto pool = KvPool::Create(worker->backend->kv_layout(), workers[i].pages,
                               [&](int64_t bytes) { return worker->backend->NewArena(bytes); });
    REQUIRE(pool.ok());
    worker->pool = std::move(*pool);
    worker->backend->SetPages(worker->pool->pages());
    WorkerCoreOptions options;
    options.decode.max_batch = workers[i].max_batch;
    options.itl_stretch = 1;
    options.min_mixed_tokens = workers[i].mixed_prefill_tokens;
    options.prefill.chunk_tokens = workers[i].chunk_tokens;
    options.announce_bytes = workers[i].announce_bytes;
    options.reuse_kv = workers[i].reuse_kv;
    const WorkerFacts facts{
        .self = IncarnationOf(index), .role = workers[i].role, .max_context = 4096};
    WorkerPorts ports;
    ports.clock = [this] { return now_; };
    ports.transfer = [this, index](TransferCommand c) { transfer_.Post(index, std::move(c)); };
    ports.report = [this, index](uint64_t, const WorkerReport& report) { OnReport(index, report); };
    ports.wake = [w = worker.get()] { w->awake = true; };
    worker->core = std::make_unique<WorkerCore>(options, facts, worker->backend.get(),
                                                worker->pool.get(), std::move(ports));
    worker->core->Handle(RouterEvent(RouterConnected{}));
    transfer_.AddEnd(facts.self, worker->pool.get());
    workers_.push_back(std::move(worker));
  }
}

RequestId SimCluster::Submit(SimRequest request, int prefill, int decode) {
  const RequestId id = next_id_++;
  Progress& progress = progress_[id];
  progress.request = std::move(request);
  progress.prefill = prefill;
  progress.decode = decode;
  Dispatch(id);
  return id;
}

void SimCluster::Dispatch(RequestId id) {
  constexpr int kMaxPreemptions = 3;  // then a promise covers the request to its end
  Progress& progress = progress_.at(id);
  const KvLayout& layout = reference_.kv_layout();
  std::vector<int32_t> tokens = progress.request.prompt;
  for (const auto& [position, token] : progress.tokens) tokens.push_back(token.token);
  const int n = progress.n_prompt = static_cast<int>(tokens.size());
  progress.max_tokens = progress.request.max_tokens - static_cast<int>(progress.tokens.size());
  progress.prefill_ended = progress.decode_ended = false;
  Ticket& ticket = progress.ticket;
  ++ticket.epoch;
  ticket.id = {.high = ticket.epoch, .low = id};
  ticket.request_id = id;
  ticket.sink = IncarnationOf(progress.decode);
  ticket.promise = ticket.id;
  ticket.kv_pages = ticket.n_pages = layout.PagesFor(n);
  ticket.promise_pages = layout.PagesFor(n + progress.max_tokens - 1);
  if (progress.preemptions < kMaxPreemptions)
    ticket.promise_pages = std::min(ticket.promise_pages, ticket.kv_pages + 1);
  const int n_generated = static_cast<int>(progress.tokens.size());
  PrefillRequest to_prefill{.request_id = id,
                            .epoch = ticket.epoch,
                            .tokens = tokens,
                            .n_generated = n_generated,
                            .sampling = progress.request.sampling,
                            .stop_tokens = progress.request.stop_tokens,
                            .want_digests = true};
  SetWhole(&to_prefill, ticket, {.incarnation = progress.max_tokens > 1 ? ticket.sink : 0});
  workers_[progress.prefill]->messages.push_back(to_prefill);
  if (progress.max_tokens > 1)
    workers_[progress.decode]->messages.push_back(
        DecodeRequest{.request_id = id,
                      .epoch = ticket.epoch,
                      .ticket_id = ticket.id,
                      .tokens = tokens,
                      .n_generated = n_generated,
                      .max_tokens = progress.max_tokens,
                      .sampling = progress.request.sampling,
                      .stop_tokens = progress.request.stop_tokens,
                      .want_digests = true});
}

void SimCluster::DispatchPreempted() {
  for (const RequestId id : std::exchange(preempted_, {})) {
    Progress& progress = progress_.at(id);
    if (progress.cancelled) continue;
    ++preemptions_;
    ++progress.preemptions;
    workers_[progress.prefill]->messages.push_back(
        CancelRequest{.request_id = id, .epoch = progress.ticket.epoch});
    Dispatch(id);
  }
}

void SimCluster::Cancel(RequestId id) {
  Progress& progress = progress_.at(id);
  progress.cancelled = true;
  const CancelRequest cancel{.request_id = id, .epoch = progress.ticket.epoch};
  workers_[progress.prefill]->messages.push_back(cancel);
  if (progress.decode != progress.prefill) workers_[progress.decode]->messages.push_back(cancel);
}

void SimCluster::DropMessages() {
  for (const auto& worker : workers_) worker->messages.clear();
}

void SimCluster::WakeAll() {
  for (const auto& worker : workers_) worker->awake = true;
}

bool SimCluster::Step() {
  now_ += absl::Microseconds(Pick(2000));
  std::vector<std::pair<int, int>> choices;  // what, worker
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) {
    if (!workers_[i]->messages.empty()) choices.emplace_back(0, i);
    if (workers_[i]->awake) choices.emplace_back(1, i);
    if (workers_[i]->late != nullptr && workers_[i]->late->has_work()) choices.emplace_back(3, i);
  }
  if (transfer_.HasWork()) {
    choices.emplace_back(2, 0);
    choices.emplace_back(2, 0);
  }
  if (choices.empty()) return false;
  const auto [what, index] = choices[Pick(static_cast<int>(choices.size()))];
  if (what == 3) {
    LateBackend& late = *workers_[index]->late;
    max_under_way_ = std::max(max_under_way_, late.steps_under_way());
    for (int n = 1 + Pick(8); n > 0 && late.has_work(); --n) late.Execute();
  } else if (what == 2) {
    transfer_.RunOne();
  } else if (what == 1) {
    workers_[index]->awake = workers_[index]->core->Turn();
    workers_[index]->is_settled = true;
  } else {
    SimWorker& worker = *workers_[index];
    worker.core->Handle(RouterEvent(RouterMessages{{std::move(worker.messages.front())}}));
    worker.messages.pop_front();
    worker.awake = true;
    worker.is_settled = false;
  }
  DispatchPreempted();
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) CheckPages(i);
  return true;
}

void SimCluster::RunDry() {
  int steps = 0;
  while (Step()) REQUIRE(++steps < 2'000'000);
}

void SimCluster::CheckPages(int worker) const {
  // Checks that every page is free, lent, or held by prompts or a sequence.
  if (!workers_[worker]->is_settled) return;
  const WorkerMetrics m = workers_[worker]->core->metrics();
  REQUIRE(workers_[worker]->pool->held() + m.pages_shared ==
          m.pages_prefill + m.pages_decode + m.pages_lent);
}

void SimCluster::OnReport(int worker, const WorkerReport& report) {
  for (const WorkerEvent& event : report.events) {
    if (const auto* token = std::get_if<TokenOut>(&event)) {
      Progress& progress = progress_.at(token->request_id);
      REQUIRE(progress.tokens.emplace(token->position, *token).second);  // each position comes once
      REQUIRE(token->epoch == progress.ticket.epoch);
      const bool first = token->position == progress.n_prompt;
      REQUIRE(worker == (first ? progress.prefill : progress.decode));
      if (token->position == static_cast<int>(progress.request.prompt.size()))
        progress.first_token_step = static_cast<int>(workers_[worker]->core->metrics().steps);
    } else if (const auto* part = std::get_if<PartEnded>(&event)) {
      Progress& progress = progress_.at(part->request_id);
      if (part->epoch < progress.ticket.epoch) continue;
      if (part->reason == EndReason::kPreempted) {
        REQUIRE_FALSE(part->was_prefill);
        preempted_.push_back(part->request_id);
      }
      bool& ended = part->was_prefill ? progress.prefill_ended : progress.decode_ended;
      REQUIRE(!ended);  // each part ends once
      ended = true;
      (part->was_prefill ? progress.prefill_end : progress.decode_end) = *part;
    } else if (std::holds_alternative<NoRoomNotice>(event)) {
      ++no_room_notices_;
    }
  }
}

void SimCluster::CheckExact(RequestId id) {
  const Progress& progress = progress_.at(id);
  const SimRequest& request = progress.request;
  const SequentialTokens expected = SequentialRun(&reference_, request.prompt, request.max_tokens,
                                                  request.sampling, request.stop_tokens);
  std::vector<int32_t> tokens;
  std::vector<uint64_t> digests;
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> beside;
  int position = static_cast<int>(request.prompt.size());
  for (const auto& [at, token] : progress.tokens) {
    REQUIRE(at == position++);
    tokens.push_back(token.token);
    digests.push_back(token.digest);
    logprobs.push_back(token.logprob);
    beside.push_back(token.logprobs);
  }
  REQUIRE(tokens == expected.tokens);
  REQUIRE(digests == expected.digests);
  REQUIRE(logprobs == expected.logprobs);
  REQUIRE(beside == expected.beside);
  REQUIRE(progress.prefill_end.reason == EndReason::kLength);
  if (progress.max_tokens > 1) {
    const bool stopped = std::find(request.stop_tokens.begin(), request.stop_tokens.end(),
                                   tokens.back()) != request.stop_tokens.end();
    REQUIRE(progress.decode_end.reason == (stopped ? EndReason::kStopToken : EndReason::kLength));
  }
}

void SimCluster::Shutdown() {
  for (const auto& worker : workers_) {
    worker->core->Close();
    worker->awake = true;
  }
  RunDry();
  for (size_t i = 0; i < workers_.size(); ++i) {
    transfer_.CloseEnd(static_cast<int>(i));
    RunDry();
    REQUIRE(workers_[i]->core->IsQuiet());
    workers_[i]->core->Abandon();
    REQUIRE(workers_[i]->pool->held() == 0);
  }
  REQUIRE(transfer_.n_open() == 0);
}

}  // namespace baton
