#include "worker/engine_thread.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"

namespace baton {
namespace {

// Exceeds the number of events that can be under way: messages and handoffs of all requests.
constexpr size_t kInboxCapacity = 1 << 18;
// Close waits this long for handoffs to end, then the transfer room goes down with them.
constexpr absl::Duration kCloseWait = absl::Seconds(2);

}  // namespace

EngineThread::EngineThread(const WorkerCoreOptions& options, const WorkerFacts& facts,
                           Backend* backend, KvPool* pool,
                           std::function<void(TransferCommand)> transfer,
                           std::function<void(WorkerReport)> report, GrammarCompilerFn compile)
    : inbox_(kInboxCapacity),
      grammars_(compile == nullptr ? nullptr
                                   : std::make_unique<GrammarThread>(
                                         std::move(compile),
                                         [this](GrammarCompiled compiled) {
                                           BATON_CHECK(inbox_.TryPost(Event(std::move(compiled))));
                                         })),
      core_(options, facts, backend, pool, Ports(std::move(transfer), std::move(report))) {}

EngineThread::~EngineThread() { BATON_CHECK(!thread_.joinable()); }

void EngineThread::Start() {
  Publish();
  thread_ = std::thread([this] { Run(); });
  ::pthread_setname_np(thread_.native_handle(), "baton-engine");
}

WorkerPorts EngineThread::Ports(std::function<void(TransferCommand)> transfer,
                                std::function<void(WorkerReport)> report) {
  WorkerPorts ports{MonotonicNow, std::move(transfer), std::move(report)};
  if (grammars_ != nullptr)
    ports.compile = [this](GrammarJob job) { grammars_->Post(std::move(job)); };
  ports.masks = &masks_;
  return ports;
}

// --- engine thread

void EngineThread::Run() {
  std::vector<Event> events;
  absl::Time close_by = absl::InfiniteFuture();
  while (!(closing_ && (core_.IsQuiet() || MonotonicNow() >= close_by))) {
    const bool goes_on = core_.Turn();
    Publish();
    if (goes_on)
      inbox_.Drain(&events);
    else
      WaitForEvents(std::min(core_.NextDeadline(), close_by), &events);
    HandleAll(&events);
    if (closing_ && close_by == absl::InfiniteFuture()) close_by = MonotonicNow() + kCloseWait;
  }
  Publish();
}

void EngineThread::WaitForEvents(absl::Time until, std::vector<Event>* events) {
  if (until == absl::InfiniteFuture())
    inbox_.WaitAndDrain(events);
  else
    inbox_.WaitAndDrain(events, std::max(absl::ZeroDuration(), until - MonotonicNow()));
}

void EngineThread::HandleAll(std::vector<Event>* events) {
  for (Event& event : *events) {
    if (auto* from_router = std::get_if<RouterEvent>(&event)) {
      if (closing_) continue;
      if (std::holds_alternative<RouterConnected>(*from_router))
        LogInfo("router connected");
      else if (const auto* lost = std::get_if<RouterDisconnected>(from_router))
        LogWarn("router lost, cancelling all work: %s", lost->reason.ToString());
      core_.Handle(std::move(*from_router));
    } else if (auto* from_transfer = std::get_if<TransferEvent>(&event)) {
      core_.Handle(std::move(*from_transfer));
    } else if (auto* compiled = std::get_if<GrammarCompiled>(&event)) {
      core_.Handle(std::move(*compiled));
    } else if (auto* drain = std::get_if<DrainNow>(&event)) {
      if (drain->drained) when_drained_.push_back(std::move(drain->drained));
      core_.Drain();
    } else {
      closing_ = true;
      core_.Close();
    }
  }
  events->clear();
}

void EngineThread::Publish() {
  const WorkerMetrics metrics = core_.metrics();
  const bool drained = metrics.draining && core_.IsQuiet();
  if (drained)
    for (const auto& told : std::exchange(when_drained_, {})) told();
  std::lock_guard lock(published_mutex_);
  published_ = metrics;
  if (drained && !is_drained_) {
    is_drained_ = true;
    drained_.notify_all();
  }
}

// --- any thread

bool EngineThread::Post(RouterEvent event) { return inbox_.TryPost(Event(std::move(event))); }

// A lost event would be lost pages.
void EngineThread::Post(TransferEvent event) {
  BATON_CHECK(inbox_.TryPost(Event(std::move(event))));
}

WorkerMetrics EngineThread::metrics() const {
  std::lock_guard lock(published_mutex_);
  return published_;
}

void EngineThread::Drain(std::function<void()> drained) {
  BATON_CHECK(inbox_.TryPost(DrainNow{std::move(drained)}));
}

bool EngineThread::WaitDrained(absl::Duration timeout) {
  std::unique_lock lock(published_mutex_);
  const auto drained = [this] { return is_drained_; };
  if (timeout == absl::InfiniteDuration()) {
    drained_.wait(lock, drained);
    return true;
  }
  return drained_.wait_for(lock, absl::ToChronoNanoseconds(timeout), drained);
}

// --- the thread that called Start

void EngineThread::Close() {
  if (!thread_.joinable()) return;
  BATON_CHECK(inbox_.TryPost(CloseNow{}));
  thread_.join();
  grammars_.reset();
}

void EngineThread::CollectPages() {
  BATON_CHECK(!thread_.joinable());
  closing_ = true;
  std::vector<Event> events;
  inbox_.Drain(&events);
  HandleAll(&events);
  core_.Abandon();
}

}  // namespace baton
