#include "worker/engine_thread.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/overloaded.h"

namespace baton {
namespace {

// Exceeds the number of events that can be under way: messages and handoffs of all requests.
constexpr size_t kInboxCapacity = 1 << 18;
// Jobs of cancelled requests stay in the mailbox until their turn.
constexpr size_t kMaxGrammarJobs = 1 << 18;
// Close waits this long for handoffs to end, then the transfer room goes down with them.
constexpr absl::Duration kCloseWait = absl::Seconds(2);
// Bounds one sleep, for the clock of the condition variable.
constexpr absl::Duration kMaxWait = absl::Hours(1);

}  // namespace

EngineThread::EngineThread(const WorkerCoreOptions& options, const WorkerFacts& facts,
                           Backend* backend, KvPool* pool, WorkerPorts ports,
                           GrammarCompilerFn compile)
    : backend_(backend),
      inbox_(kInboxCapacity),
      core_(options, facts, backend, pool, Ports(std::move(ports), std::move(compile))) {}

EngineThread::~EngineThread() { BATON_CHECK(!thread_.joinable()); }

void EngineThread::Start() {
  Publish();
  thread_ = std::thread([this] { Run(); });
  ::pthread_setname_np(thread_.native_handle(), "baton-engine");
}

// Adds to the ports what this thread and its helpers do.
WorkerPorts EngineThread::Ports(WorkerPorts ports, GrammarCompilerFn compile) {
  ports.clock = MonotonicNow;
  ports.masks = &masks_;
  ports.expect = [this](absl::Duration step) { pulse_.Expect(step); };
  // Where there is no room, what is there has Turn called as well.
  ports.wake = [this] { static_cast<void>(inbox_.TryPost(FenceReached{})); };
  if (compile == nullptr) return ports;
  grammars_.emplace("baton-grammar", kMaxGrammarJobs,
                    [this, compile = std::move(compile)](const GrammarJob& job) {
                      BATON_CHECK(inbox_.TryPost(GrammarCompiled{job.id, compile(job.spec)}));
                    });
  ports.compile = [this](GrammarJob job) { BATON_CHECK(grammars_->TryPost(std::move(job))); };
  return ports;
}

// --- engine thread

void EngineThread::Run() {
  std::vector<Event> events;
  absl::Time close_by = absl::InfiniteFuture();
  Fence awaited;  // the next one of what was under way a turn ago
  pulse_.Begin(MonotonicNow());
  // Writes of the engine into this object are waited for in any case.
  const auto is_over = [&] {
    return core_.is_lost() || core_.IsQuiet() ||
           (MonotonicNow() >= close_by && !core_.has_under_way());
  };
  while (!(closing_ && is_over())) {
    const bool goes_on = core_.Turn();
    Publish();
    const absl::Time now = MonotonicNow();
    const absl::Time end = now < close_by ? close_by : absl::InfiniteFuture();
    const absl::Duration wait = std::min(core_.NextDeadline(), end) - now;
    if (goes_on) {
      inbox_.Drain(&events);
    } else {
      if (!core_.has_under_way()) pulse_.Rest();
      inbox_.WaitAndDrain(&events, std::clamp(wait, absl::ZeroDuration(), kMaxWait));
    }
    // One turn lasts as long as the engine gets nowhere, whatever comes in meanwhile.
    const Fence next = core_.next_fence();
    if (!core_.has_under_way() || next != awaited) {
      pulse_.Begin(MonotonicNow());
      pulse_.Expect(core_.expected());
    }
    awaited = next;
    HandleAll(&events);
    if (closing_ && close_by == absl::InfiniteFuture()) close_by = MonotonicNow() + kCloseWait;
  }
  Publish();
  pulse_.Rest();
}

void EngineThread::HandleAll(std::vector<Event>* events) {
  const auto handle = Overloaded{
      [this](RouterEvent& event) {
        if (closing_) return;
        if (const auto* connected = std::get_if<RouterConnected>(&event))
          LogInfo("router %06x connected", connected->router);
        else if (const auto* lost = std::get_if<RouterDisconnected>(&event))
          LogWarn("router %06x lost, cancelling all its work: %s", lost->router,
                  lost->reason.ToString());
        core_.Handle(std::move(event));
      },
      [](FenceReached&) {},
      [this](auto& event) { core_.Handle(std::move(event)); },
      [this](DrainNow& drain) {
        when_drained_.push_back(std::move(drain.drained));
        core_.Drain();
      },
      [this](CloseNow&) {
        closing_ = true;
        core_.Close();
      },
  };
  for (Event& event : *events) std::visit(handle, event);
  events->clear();
}

void EngineThread::Publish() {
  const WorkerMetrics metrics = core_.metrics();
  {
    std::lock_guard lock(published_mutex_);
    published_ = metrics;
  }
  if (metrics.load.draining && core_.IsQuiet())
    for (const auto& told : std::exchange(when_drained_, {})) told();
}

// --- any thread

bool EngineThread::Post(RouterEvent event) { return inbox_.TryPost(Event(std::move(event))); }

// A lost event would be lost pages.
void EngineThread::Post(TransferEvent event) {
  BATON_CHECK(inbox_.TryPost(Event(std::move(event))));
}

WorkerMetrics EngineThread::metrics() const {
  WorkerMetrics metrics;
  {
    std::lock_guard lock(published_mutex_);
    metrics = published_;
  }
  metrics.engine = turn();
  return metrics;
}

EngineTurn EngineThread::turn() const { return pulse_.Read(MonotonicNow()); }

void EngineThread::Drain(std::function<void()> drained) {
  BATON_CHECK(inbox_.TryPost(DrainNow{std::move(drained)}));
}

// --- the thread that called Start

void EngineThread::Close() {
  if (!thread_.joinable()) return;
  BATON_CHECK(inbox_.TryPost(CloseNow{}));
  thread_.join();
  grammars_.reset();
  backend_->StopWaking();
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
