#include "tests/sim/node.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "tests/sim/narration.h"
#include "tests/sim/violation.h"
#include "tests/support/hash_grammar.h"
#include "worker/announce.h"

namespace baton::sim {
namespace {

constexpr int64_t kIdleTickUs = 100'000;
constexpr int kIdleTicks = 60;  // after this no tick can end anything that is open

absl::Time TimeOf(int64_t us) { return absl::FromUnixMicros(us); }

ClusterKey Key() { return {1, 2, 3}; }

PrefillCost CostOf(const WorkerPlan& plan, int n_layers) {
  const double per_layer = 1e-6 / n_layers;
  PrefillCost cost;
  cost.n_layers = n_layers;
  cost.token = per_layer * static_cast<double>(plan.token_us);
  cost.pair = per_layer * plan.pair_us;
  cost.extra_tokens = static_cast<double>(plan.step_us) / static_cast<double>(plan.token_us);
  return cost;
}

}  // namespace

Node::Node(int index, const Swarm& swarm, Agenda* agenda, SimRandom* random, MemNetwork* network,
           Reporter report, TransitionCounts* transitions)
    : index_(index),
      swarm_(swarm),
      plan_(swarm.workers[static_cast<size_t>(index)]),
      agenda_(agenda),
      random_(random),
      network_(network),
      report_(std::move(report)),
      transitions_(transitions) {}

Node::~Node() {
  if (alive()) Kill();
}

// --- the process

void Node::Start(uint64_t random_id) {
  incarnation_ = MakeIncarnation(plan_.role, random_id);
  stage_ = Stage::kServing;
  MakeEngine();
  auto pool = KvPool::Create(engine_->kv_layout(), plan_.pages,
                             [this](int64_t bytes) { return engine_->NewArena(bytes); });
  BATON_CHECK(pool.ok());
  pool_ = *std::move(pool);
  engine_->SetPages(pool_->pages());
  const auto n_pages = static_cast<size_t>(pool_->n_ids());
  engine_side_.assign(n_pages, Holder::kEngine);
  link_reads_.assign(n_pages, 0);
  salts_.clear();
  link_side_.assign(n_pages, Holder::kEngine);
  turns_.assign(n_pages, 0);
  in_step_.assign(n_pages, InStep::kNot);
  link_pages_ = 0;

  link_ = network_->MakeLink(
      [this] {
        if (link_ != nullptr) WakeLink(agenda_->now_us() + WakeDelay());
      },
      absl::StrFormat("worker:%d", index_));
  WorkerCoreOptions core;
  core.decode.max_batch = plan_.max_batch;
  core.decode.transitions = transitions_;
  core.min_mixed_tokens = plan_.mixed_prefill_tokens;
  core.prefill.chunk_tokens = plan_.chunk_tokens;
  core.announce_bytes = plan_.announce_bytes;
  core.prefill.transitions = transitions_;
  core.zeroed_bytes_per_turn = pool_->layout().page_bytes * 16;
  WorkerFacts facts{
      .self = incarnation_, .role = plan_.role, .max_context = plan_.pages * swarm_.page_tokens};
  facts.key = Key();
  if (plan_.knows_cost) facts.first_cost = CostOf(plan_, swarm_.n_layers);
  announce_ = AnnounceOf(facts, core, *engine_, *pool_);
  announce_.name = absl::StrFormat("w%d", index_);
  announce_.transfer = {.incarnation = incarnation_, .address = link_->address()};
  TransferOptions transfer;
  transfer.chunk_bytes = swarm_.chunk_bytes;
  transfer.window_bytes = swarm_.window_bytes;
  transfer.slab_slots = swarm_.slab_slots;
  transfer.hello_timeout_ms = swarm_.hello_timeout_ms;
  transfer.peer_timeout_ms = swarm_.peer_timeout_ms;
  transfer.transitions = transitions_;
  if (swarm_.seed % 2 == 0) transfer.trusted_cidrs = "0.0.0.0/0";  // else KV has MACs
  const TransferFacts at_link = TransferFactsOf(announce_, Key());
  const PoolView view = ViewOf(*pool_);
  BATON_CHECK(TransferCore::Validate(transfer, at_link, view).ok());
  transfer_ = std::make_unique<TransferCore>(
      transfer, at_link, view, link_.get(),
      [this](TransferEvent event) { OnTransferEvent(std::move(event)); }, MakeCopier());

  clock_us_ = turn_since_us_ = agenda_->now_us();
  n_turns_ = 0;
  std::function<void(TransferCommand)> commands = [this](TransferCommand c) {
    OnCommand(std::move(c));
  };
  if (!swarm_.cut_through) {
    filter_ = std::make_unique<WholePlanes>();
    commands = [this, post = std::move(commands)](TransferCommand c) {
      filter_->OnCommand(std::move(c), post);
    };
  }
  core_ = std::make_unique<WorkerCore>(
      core, facts, engine_.get(), pool_.get(),
      WorkerPorts{.clock = [this] { return TimeOf(clock_us_); },
                  .transfer = std::move(commands),
                  .report = [this](uint64_t stream,
                                   WorkerReport r) { report_(stream, std::move(r), clock_us_); },
                  .compile = [this](GrammarJob job) { OnCompile(std::move(job)); },
                  .expect = [this](absl::Duration step) { expected_ += step; },
                  .wake = [this] { WakeEngine(agenda_->now_us() + WakeDelay()); }});
  WakeEngine(agenda_->now_us());
}

// All memory of the process is lost at once.
void Node::Kill() {
  std::unique_ptr<MemLink> link = std::move(link_);  // its wake-ups are void from now on
  if (paused_) network_->Thaw(link.get());
  paused_ = stands_ = false;
  posted_.clear();
  sending_.clear();
  engine_inflows_.clear();
  link_inflows_.clear();
  link.reset();
  transfer_.reset();
  core_.reset();
  engine_inbox_.clear();
  compiles_.clear();
  compiled_.clear();
  link_inbox_.clear();
  device_stamp_ = copier_stamp_ = 0;
  engine_at_us_ = link_at_us_ = INT64_MAX;
  engine_stamp_ = link_stamp_ = ++stamp_;
  for (int32_t page = 0; page < pool_->n_ids(); ++page)
    while (pool_->is_held(page)) {
      const int32_t entry = pool_->NeedsAll(page) ? page : TrimmedEntry(page);
      pool_->Give(std::span(&entry, 1));
    }
  pool_.reset();
  engine_.reset();
}

void Node::Pause() {
  paused_ = true;
  network_->Freeze(link_.get());
}

void Node::Resume() {
  paused_ = false;
  network_->Thaw(link_.get());
  WakeEngine(agenda_->now_us());
  WakeLink(agenda_->now_us());
}

void Node::Stand() {
  stands_ = true;
  if (clock_us_ > agenda_->now_us()) return;  // in this turn
  ++n_turns_;
  turn_since_us_ = agenda_->now_us();
  expected_ = absl::ZeroDuration();
}

void Node::TurnAgain() {
  stands_ = false;
  WakeEngine(agenda_->now_us());
}

baton::EngineTurn Node::TurnAt(int64_t at_us) const {
  if (!stands_ && at_us > clock_us_) return {.turns = n_turns_};
  return {.turns = n_turns_,
          .age_us = std::max<int64_t>(1, at_us - turn_since_us_),
          .expected_us = absl::ToInt64Microseconds(expected_)};
}

// --- the engine thread

void Node::WakeEngine(int64_t at_us) {
  at_us = std::max(at_us, clock_us_);
  if (at_us >= engine_at_us_) return;
  engine_at_us_ = at_us;
  engine_stamp_ = ++stamp_;
  agenda_->Add(at_us, What::kEngineTurn, index_, engine_stamp_);
}

void Node::Post(RouterEvent event) {
  engine_inbox_.emplace_back(std::move(event));
  WakeEngine(agenda_->now_us() + WakeDelay());
}

void Node::EngineTurn(uint64_t stamp) {
  if (!alive() || stamp != engine_stamp_) return;
  engine_at_us_ = INT64_MAX;
  if (paused_ || stands_) return;
  clock_us_ = std::max(clock_us_, agenda_->now_us());
  ++n_turns_;
  turn_since_us_ = clock_us_;
  expected_ = absl::ZeroDuration();
  TakeCompiled();
  const size_t n_events = engine_inbox_.size();
  for (size_t n = n_events; n > 0; --n) {
    EngineEvent event = std::move(engine_inbox_.front());
    engine_inbox_.pop_front();
    HandleAtEngine(std::move(event));
  }
  const bool goes_on = core_->Turn();
  CheckEngine();
  if (n_events > 0 || goes_on)
    agenda_->Happened(What::kEngineTurn, index_, n_events << 32 | static_cast<uint32_t>(clock_us_));
  if (goes_on) {
    WakeEngine(agenda_->now_us() + 1);
  } else if (!engine_inbox_.empty()) {
    WakeEngine(agenda_->now_us());
  } else if (core_->NextDeadline() != absl::InfiniteFuture()) {
    WakeEngine(std::max(absl::ToUnixMicros(core_->NextDeadline()), agenda_->now_us()) + 1);
  }
  if (!compiles_.empty()) WakeEngine(compiles_.front().at_us);
}

// Compiles end in their order, each up to 300 ms after its job or the one before, or at once if the
// grammar is known.
void Node::OnCompile(GrammarJob job) {
  const int64_t from_us = compiles_.empty() ? clock_us_ : compiles_.back().at_us;
  const bool is_known = !compiled_.insert(job.spec.text).second;
  compiles_.push_back({from_us + random_->Magnitude(1, is_known ? 100 : 300'000),
                       {job.id, HashGrammarOf(job.spec, HashBackend::kVocab)}});
  WakeEngine(compiles_.front().at_us);
}

void Node::TakeCompiled() {
  while (!compiles_.empty() && compiles_.front().at_us <= clock_us_) {
    if (stage_ <= Stage::kDraining) core_->Handle(std::move(compiles_.front().compiled));
    compiles_.pop_front();
  }
}

void Node::HandleAtEngine(EngineEvent event) {
  if (auto* from_router = std::get_if<RouterEvent>(&event)) {
    if (stage_ > Stage::kDraining) return;  // the engine thread is closing
    if (agenda_->tracing()) agenda_->Trace("worker %d <- router: %s", index_, Tell(*from_router));
    NoteSalts(*from_router);
    return core_->Handle(std::move(*from_router));
  }
  auto& from_link = std::get<TransferEvent>(event);
  if (agenda_->tracing()) agenda_->Trace("worker %d <- link: %s", index_, Tell(from_link));
  const auto take_back = [this](const std::vector<int32_t>& pages) {
    for (const int32_t page : pages) engine_side_[page] = Holder::kEngine;
  };
  if (const auto* arrived = std::get_if<HandoffArrived>(&from_link)) take_back(arrived->pages);
  if (const auto* returned = std::get_if<PagesReturned>(&from_link)) take_back(returned->pages);
  NoteInflow(from_link, &engine_inflows_, &engine_side_);
  if (const auto* ended = std::get_if<HandoffEnded>(&from_link))
    sending_.erase({ended->ticket_id.high, ended->ticket_id.low});
  core_->Handle(std::move(from_link));
}

// --- the link thread

void Node::WakeLink(int64_t at_us) {
  if (at_us >= link_at_us_) return;
  link_at_us_ = at_us;
  link_stamp_ = ++stamp_;
  agenda_->Add(at_us, What::kLinkTurn, index_, link_stamp_);
}

void Node::OnCommand(TransferCommand command) {
  if (const auto* lend = std::get_if<LendPages>(&command)) {
    for (const int32_t page : lend->pages) {
      Require(pool_->is_held(page) && engine_side_[page] == Holder::kEngine,
              "worker %d: page %d is lent, but not the engine's", index_, page);
      engine_side_[page] = Holder::kLink;
    }
  }
  if (const auto* lend = std::get_if<LendHeld>(&command)) CheckHeld(*lend);
  if (const auto* await = std::get_if<AwaitInflow>(&command)) {
    for (const int32_t page : await->pages) {
      Require(pool_->is_held(page) && engine_side_[page] == Holder::kEngine,
              "worker %d: an inflow is to land in page %d, which is not the engine's", index_,
              page);
      engine_side_[page] = Holder::kInflow;
    }
    engine_inflows_[{await->ticket_id.high, await->ticket_id.low}] = await->pages;
  }
  if (const auto* open = std::get_if<OpenHandoff>(&command))
    sending_[{open->ticket.id.high, open->ticket.id.low}] = {};
  if (const auto* cells = std::get_if<SendCells>(&command)) {
    // A handoff whose end has come in this turn sends nothing more.
    const auto it = sending_.find({cells->ticket_id.high, cells->ticket_id.low});
    if (it != sending_.end())
      it->second.insert(it->second.end(), cells->pages.begin(), cells->pages.end());
  }
  if (swarm_.link_at_once && !in_link_ && link_inbox_.empty()) {
    in_link_ = true;
    HandleCommand(std::move(command));
    transfer_->Pump(agenda_->now_us());
    RunCopier();
    in_link_ = false;
    WakeLink(agenda_->now_us() + swarm_.tick_us);
  } else {
    link_inbox_.push_back({clock_us_, std::move(command)});
    WakeLink(clock_us_ + WakeDelay());
  }
}

void Node::HandleCommand(TransferCommand command) {
  if (agenda_->tracing()) agenda_->Trace("worker %d -> link: %s", index_, Tell(command));
  idle_ticks_ = 0;
  if (const auto* lend = std::get_if<LendPages>(&command)) {
    for (const int32_t page : lend->pages) {
      link_side_[page] = Holder::kLink;
      ++turns_[page];
    }
    link_pages_ += static_cast<int>(lend->pages.size());
  }
  if (const auto* lend = std::get_if<LendHeld>(&command)) {
    for (const int32_t page : lend->pages) ++link_reads_[page];
    link_pages_ += static_cast<int>(lend->pages.size());
  }
  if (const auto* await = std::get_if<AwaitInflow>(&command)) {
    for (const int32_t page : await->pages) {
      link_side_[page] = Holder::kInflow;
      ++turns_[page];
    }
    link_inflows_[{await->ticket_id.high, await->ticket_id.low}] = await->pages;
  }
  transfer_->Handle(std::move(command), agenda_->now_us());
}

void Node::LinkTurn(uint64_t stamp) {
  if (!alive() || stamp != link_stamp_) return;
  const int64_t now_us = agenda_->now_us();
  link_at_us_ = INT64_MAX;
  if (paused_) return;
  in_link_ = true;
  size_t n_handled = 0;
  for (; !link_inbox_.empty() && link_inbox_.front().at_us <= now_us; ++n_handled) {
    TransferCommand command = std::move(link_inbox_.front().command);
    link_inbox_.pop_front();
    HandleCommand(std::move(command));
  }
  link_->Poll(&link_events_);
  n_handled += link_events_.size();
  for (LinkEvent& event : link_events_) transfer_->Handle(std::move(event), now_us);
  link_events_.clear();
  n_handled += transfer_->PollCopier(now_us);
  transfer_->Tick(now_us);
  const bool more = transfer_->Pump(now_us);
  RunCopier();
  in_link_ = false;
  CheckLink();
  if (n_handled > 0) {
    idle_ticks_ = 0;
    agenda_->Happened(What::kLinkTurn, index_, n_handled << 32 | transfer_->n_operations());
  }
  if (more) WakeLink(now_us + 1);
  if (!link_inbox_.empty()) WakeLink(std::max(now_us + 1, link_inbox_.front().at_us));
  if (transfer_->busy()) {
    WakeLink(now_us + swarm_.tick_us);
  } else if (idle_ticks_ < kIdleTicks) {
    ++idle_ticks_;
    WakeLink(now_us + kIdleTickUs);
  }
}

void Node::OnTransferEvent(TransferEvent event) {
  const auto leave = [this](const std::vector<int32_t>& pages) {
    for (const int32_t page : pages) {
      if (link_reads_[page] > 0) {
        --link_reads_[page];
        continue;
      }
      Require(link_side_[page] == Holder::kLink, "worker %d: page %d comes out, but was not lent",
              index_, page);
      link_side_[page] = Holder::kEngine;
    }
    link_pages_ -= static_cast<int>(pages.size());
  };
  if (const auto* arrived = std::get_if<HandoffArrived>(&event)) leave(arrived->pages);
  if (const auto* returned = std::get_if<PagesReturned>(&event)) leave(returned->pages);
  NoteInflow(event, &link_inflows_, &link_side_);
  if (filter_ != nullptr) filter_->OnEvent(event);
  engine_inbox_.emplace_back(std::move(event));
  WakeEngine(agenda_->now_us() + WakeDelay());
}

// --- the end

bool Node::IsQuiet() const {
  return core_->IsQuiet() && engine_inbox_.empty() && link_inbox_.empty() && !transfer_->busy() &&
         transfer_->n_operations() == 0 && link_->idle() && pool_->held() == link_pages_ &&
         transfer_->receive_pool().free_pages() == link_pages_ &&
         (filter_ == nullptr || filter_->idle());
}

std::string Node::Describe() const {
  if (!alive()) return "dead";
  const WorkerMetrics m = core_->metrics();
  return absl::StrFormat(
      "%s%s%d prompts, %d rows, %d waiting, pages %d held: %d prefill, %d decode, %d lent (%d "
      "free, "
      "%d bound, %d tickets wait), %d operations, inboxes %d and %d%s",
      paused_   ? "paused, "
      : stands_ ? "stands, "
                : "",
      core_->IsQuiet() ? "quiet, " : "", m.prefill_prompts, m.load.decode_rows,
      m.load.decode_waiting, pool_->held(), m.pages_prefill, m.pages_decode, m.pages_lent,
      transfer_->receive_pool().free_pages(), transfer_->bound_pages(), m.handoffs_waiting,
      transfer_->n_operations(), engine_inbox_.size(), link_inbox_.size(),
      transfer_->busy() ? ", handoffs open" : "");
}

void Node::Enter(Stage stage) {
  stage_ = stage;
  stage_since_us_ = agenda_->now_us();
}

void Node::Drain() {
  Enter(Stage::kDraining);
  core_->Drain();
  WakeEngine(agenda_->now_us());
}

bool Node::StopOn(bool patience_over) {
  constexpr int64_t kCloseWaitUs = 2'000'000, kShutDownWaitUs = 1'000'000;
  const int64_t waited_us = agenda_->now_us() - stage_since_us_;
  switch (stage_) {
    case Stage::kServing:
      break;
    case Stage::kDraining:
      if (!core_->IsQuiet() && !patience_over) break;
      CloseEngine();
      Enter(Stage::kClosing);
      break;
    case Stage::kClosing:
      if (!core_->IsQuiet() && (waited_us < kCloseWaitUs || core_->has_under_way())) break;
      transfer_->ShutDown(agenda_->now_us());
      WakeLink(agenda_->now_us());
      Enter(Stage::kShuttingDown);
      break;
    case Stage::kShuttingDown:
      if (transfer_->busy() && waited_us < kShutDownWaitUs) break;
      CloseTransfer();
      Enter(Stage::kDisconnecting);
      break;
    case Stage::kDisconnecting:
      if (transfer_->busy() || transfer_->n_operations() > 0 || !link_inbox_.empty()) break;
      CollectPages();
      return true;
  }
  return false;
}

void Node::CloseEngine() {
  core_->Close();
  WakeEngine(agenda_->now_us());
}

void Node::ShutDownTransfer() {
  Require(core_->IsQuiet(), "worker %d: requests do not end when the worker stops", index_);
  transfer_->ShutDown(agenda_->now_us());
  WakeLink(agenda_->now_us());
}

void Node::CloseTransfer() {
  transfer_->CloseConnections(agenda_->now_us());
  WakeLink(agenda_->now_us());
}

void Node::CollectPages() {
  Require(!transfer_->busy() && transfer_->n_operations() == 0,
          "worker %d: handoffs do not end when the worker stops", index_);
  transfer_->GiveLentPagesBack();
  while (!engine_inbox_.empty()) {
    HandleAtEngine(std::move(engine_inbox_.front()));
    engine_inbox_.pop_front();
  }
  core_->Abandon();
  Require(pool_->held() == 0, "worker %d: %d pages held after the end", index_, pool_->held());
  Require(pool_->free() == plan_.pages, "worker %d: %d of %d pages free after the end", index_,
          pool_->free(), plan_.pages);
}

}  // namespace baton::sim
