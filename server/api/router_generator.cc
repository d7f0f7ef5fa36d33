#include "server/api/router_generator.h"

#include "common/clock.h"
#include "common/log.h"

namespace baton {

absl::StatusOr<std::unique_ptr<RouterGenerator>> RouterGenerator::Start(
    EventLoop* loop, const RouterOptions& options, ControlServerOptions control) {
  std::unique_ptr<RouterGenerator> generator(new RouterGenerator(loop, options, control.key));
  control.router = generator->router_.id();
  control.wake = [loop, self = generator.get()] { loop->Post([self] { self->OnControl(); }); };
  ASSIGN_OR_RETURN(generator->server_, ControlServer::Start(control));
  return generator;
}

RouterGenerator::RouterGenerator(EventLoop* loop, const RouterOptions& options,
                                 const ClusterKey& key)
    : loop_(loop), router_(options, key, RandomId), streams_(&router_), timer_(loop) {}

RouterGenerator::~RouterGenerator() {
  if (server_) server_->Shutdown();
}

absl::StatusOr<RequestId> RouterGenerator::Submit(GenerateRequest request) {
  auto id = router_.Submit(std::move(request), MonotonicNow());
  CarryOut();
  DeliverLater();
  return id;
}

void RouterGenerator::Cancel(RequestId id) {
  router_.Cancel(id, MonotonicNow());
  CarryOut();
  DeliverLater();
}

void RouterGenerator::Drain() {
  router_.Drain();
  CarryOut();
  DeliverLater();
}

void RouterGenerator::OnControl() {
  const bool changed = TakeControlEvents(MonotonicNow());
  CarryOut();
  Deliver();
  if (changed && on_change_) on_change_();
}

// True: a worker came or went.
bool RouterGenerator::TakeControlEvents(absl::Time now) {
  bool changed = false;
  while (server_->TakeEvents(&events_)) {
    for (ControlEvent& event : events_) changed |= Handle(std::move(event), now);
    events_.clear();
  }
  return changed;
}

bool RouterGenerator::Handle(ControlEvent event, absl::Time now) {
  if (const auto* connected = std::get_if<WorkerConnected>(&event)) {
    LogInfo("worker %016x connected from %s", connected->worker, connected->peer);
    return true;
  }
  if (const auto* lost = std::get_if<WorkerLost>(&event)) {
    LogWarn("worker %016x lost: %s", lost->worker, std::string(lost->reason.message()));
    streams_.OnLost(lost->worker, now);
    return true;
  }
  return HandleReport(std::get<WorkerReported>(event), now);
}

bool RouterGenerator::HandleReport(const WorkerReported& reported, absl::Time now) {
  bool changed = false;
  for (const WorkerEvent& part : reported.report.events) {
    if (const auto* announce = std::get_if<WorkerAnnounce>(&part)) {
      LogInfo("worker %016x is %s, kv pages %d of %d tokens, at %s", reported.worker,
              announce->name, announce->pages_total, announce->page_tokens,
              announce->transfer.address);
      changed = true;
    }
  }
  const absl::Status status = streams_.OnReport(reported.worker, reported.report, now);
  if (!status.ok())
    LogError("worker %016x refused: %s", reported.worker, std::string(status.message()));
  return changed;
}

void RouterGenerator::OnTime() {
  timer_set_ = absl::InfiniteFuture();
  const absl::Time now = MonotonicNow();
  const bool changed = TakeControlEvents(now);  // they were not silent
  router_.OnTime(now);
  CarryOut();
  Deliver();
  if (changed && on_change_) on_change_();
}

void RouterGenerator::CarryOut() {
  streams_.Collect();
  for (auto& [worker, messages] : streams_.TakeMessages())
    server_->Send(worker, std::move(messages));
  for (const auto& [worker, reason] : streams_.TakeCloses()) server_->Close(worker, reason);
  const absl::Time next = router_.NextDeadline();
  if (next != timer_set_) {
    timer_set_ = next;
    timer_.Set(next, [this] { OnTime(); });
  }
}

// From inside Submit or Cancel: the caller is not ready for events of its own making.
void RouterGenerator::DeliverLater() {
  if (streams_.emissions().empty() || delivery_posted_) return;
  delivery_posted_ = true;
  loop_->Post([this] {
    delivery_posted_ = false;
    Deliver();
  });
}

void RouterGenerator::Deliver() {
  // A listener may submit or cancel meanwhile, which appends.
  std::vector<RouterEffect>& emissions = streams_.emissions();
  for (size_t i = 0; i < emissions.size(); ++i) {
    const RouterEffect effect = std::move(emissions[i]);
    if (listener_ == nullptr) continue;
    if (const auto* token = std::get_if<EmitToken>(&effect)) listener_->OnToken(*token);
    if (const auto* end = std::get_if<EmitEnd>(&effect)) listener_->OnEnd(*end);
    if (const auto* released = std::get_if<EmitReleased>(&effect)) listener_->OnReleased(*released);
  }
  emissions.clear();
}

}  // namespace baton
