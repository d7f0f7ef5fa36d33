#include "tests/sim/control_wire.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/sim/violation.h"

namespace baton::sim {
namespace {

constexpr int64_t kDialTimeoutUs = 2'000'000;
const int64_t kMinPauseUs = absl::ToInt64Microseconds(ControlClientOptions().min_pause);
const int64_t kMaxPauseUs = absl::ToInt64Microseconds(ControlClientOptions().max_pause);

}  // namespace

ControlWire::ControlWire(int index, const Swarm& swarm, Agenda* agenda, SimRandom* random,
                         std::vector<std::unique_ptr<Node>>* nodes,
                         std::function<void()> wake_front)
    : index_(index),
      swarm_(swarm),
      agenda_(agenda),
      random_(random),
      nodes_(nodes),
      wake_front_(std::move(wake_front)),
      page_losses_(swarm.seed ^ 0x6c6f73736573) {
  const size_t n = swarm.workers.size();
  diallers_.resize(n);
  up_blocked_.resize(n);
  down_blocked_.resize(n);
  silent_since_us_.assign(n, INT64_MAX);
  clogged_until_us_.assign(n, 0);
  lost_pages_.assign(n, false);
}

int64_t ControlWire::Delay(int node) {
  int64_t delay_us =
      random_->Between(swarm_.min_delay_us, swarm_.min_delay_us + 2 * swarm_.mean_delay_us);
  if (random_->Percent(swarm_.slow_percent)) delay_us *= 16;
  if (node == swarm_.far_worker) delay_us += random_->Between(0, swarm_.far_us);
  return std::max(delay_us, clogged_until_us_[node] - agenda_->now_us());
}

ControlWire::Stream* ControlWire::Find(uint64_t id) {
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : &it->second;
}

void ControlWire::PushUp(Stream* stream, std::variant<WorkerReport, Lost> what, int64_t sent_us) {
  int64_t due_us = std::max(sent_us, agenda_->now_us()) + Delay(stream->node);
  if (!stream->up.empty()) due_us = std::max(due_us, stream->up.back().due_us);
  stream->up.push_back({sent_us, due_us, std::move(what)});
  agenda_->Add(due_us, What::kControlUp, Subject(stream->node), stream->id);
}

void ControlWire::PushDown(Stream* stream, RouterEvent what) {
  int64_t due_us = agenda_->now_us() + Delay(stream->node);
  if (!stream->down.empty()) due_us = std::max(due_us, stream->down.back().due_us);
  stream->down.push_back({due_us, std::move(what)});
  agenda_->Add(due_us, What::kControlDown, Subject(stream->node), stream->id);
}

// --- the worker's end

void ControlWire::StartDialling(int node) {
  diallers_[node] = {.stamp = diallers_[node].stamp + 1, .pause_us = kMinPauseUs};
  agenda_->Add(agenda_->now_us() + random_->Between(0, kMinPauseUs), What::kDial, Subject(node),
               diallers_[node].stamp);
}

void ControlWire::Dial(int node, uint64_t stamp) {
  Dialler& dialler = diallers_[node];
  const Node& worker = *(*nodes_)[node];
  if (stamp != dialler.stamp || !worker.alive()) return;
  // A stopped process dials after it resumes; a dial to an unreachable router times out and is
  // repeated.
  if (worker.paused() || up_blocked_[node] || down_blocked_[node]) {
    agenda_->Add(agenda_->now_us() + kDialTimeoutUs, What::kDial, Subject(node), stamp);
    return;
  }
  if (!router_up_) {  // refused
    dialler.pause_us = std::min(2 * dialler.pause_us, kMaxPauseUs);
    agenda_->Add(agenda_->now_us() + dialler.pause_us, What::kDial, Subject(node), stamp);
    return;
  }
  Prune();
  agenda_->Happened(What::kDial, node);
  const uint64_t id = next_++;
  Stream& stream = streams_[id];
  stream = {.id = id, .node = node, .worker = worker.incarnation(), .up = {}, .down = {}};
  dialler.stream = id;
  dialler.opened_us = agenda_->now_us();
  const int64_t now_us = agenda_->now_us();
  WorkerAnnounce announce = worker.announce();
  announce.clock_us = now_us;
  PushUp(&stream, WorkerReport{.events = {std::move(announce)}, .engine = worker.TurnAt(now_us)},
         now_us);
}

void ControlWire::Report(int node, uint64_t name, WorkerReport report, int64_t at_us) {
  Stream* const stream = Find(diallers_[node].stream);
  if (stream != nullptr && stream->worker_open && stream->name() == name)
    Write(stream, std::move(report), at_us);
}

void ControlWire::Sign(int node, int64_t at_us) {
  Stream* const stream = Find(diallers_[node].stream);
  if (stream != nullptr && stream->worker_open && stream->accepted) Write(stream, {}, at_us);
}

void ControlWire::Write(Stream* stream, WorkerReport report, int64_t at_us) {
  LosePages(stream->node, &report);
  report.engine = (*nodes_)[stream->node]->TurnAt(at_us);
  // Reports that come while another report is being written are sent together.
  if (!stream->up.empty() && random_->Percent(20)) {
    Up& last = stream->up.back();
    auto* waiting = std::get_if<WorkerReport>(&last.what);
    if (waiting != nullptr && last.due_us > at_us && stream->up.size() > 1) {
      std::move(report.events.begin(), report.events.end(), std::back_inserter(waiting->events));
      waiting->engine = report.engine;
      last.sent_us = at_us;
      return;
    }
  }
  PushUp(stream, std::move(report), at_us);
}

void ControlWire::OnKilled(int node) {
  silent_since_us_[node] = INT64_MAX;
  ++diallers_[node].stamp;
  diallers_[node].stream = 0;
  for (auto& [id, stream] : streams_) {
    if (stream.node != node || !stream.worker_open) continue;
    stream.worker_open = false;
    stream.down.clear();
    while (!stream.up.empty() && stream.up.back().sent_us > agenda_->now_us()) stream.up.pop_back();
    LoseUp(&stream);
  }
}

void ControlWire::OnPaused(int node) {
  silent_since_us_[node] = std::min(silent_since_us_[node], agenda_->now_us());
  for (const auto& [id, stream] : streams_)
    if (stream.node == node)
      agenda_->Add(agenda_->now_us() + swarm_.keepalive_us, What::kKeepalive, Subject(node), id);
}

void ControlWire::OnResumed(int node) {
  if (!up_blocked_[node] && !down_blocked_[node]) silent_since_us_[node] = INT64_MAX;
  for (const auto& [id, stream] : streams_) {
    if (stream.node != node) continue;
    for (size_t n = stream.down.size(); n > 0; --n)
      agenda_->Add(agenda_->now_us(), What::kControlDown, Subject(node), id);
    for (size_t n = stream.up.size(); n > 0; --n)
      agenda_->Add(agenda_->now_us(), What::kControlUp, Subject(node), id);
  }
}

void ControlWire::DeliverDown(uint64_t id) {
  Stream* const stream = Find(id);
  if (stream == nullptr || stream->down.empty() || !stream->worker_open) return;
  Node& node = *(*nodes_)[stream->node];
  if (down_blocked_[stream->node] || node.paused()) return;  // OnResumed delivers later
  if (stream->down.front().due_us > agenda_->now_us()) return;
  RouterEvent event = std::move(stream->down.front().what);
  stream->down.pop_front();
  agenda_->Happened(What::kControlDown, stream->node, event.index());
  if (std::holds_alternative<RouterDisconnected>(event)) return EndAtWorker(stream);
  if (std::holds_alternative<RouterConnected>(event)) stream->accepted = true;
  node.Post(std::move(event));
}

void ControlWire::EndAtWorker(Stream* stream) {
  stream->worker_open = false;
  stream->down.clear();
  Dialler& dialler = diallers_[stream->node];
  if (dialler.stream != stream->id) return;
  dialler.stream = 0;
  if (stream->accepted)
    (*nodes_)[stream->node]->Post(RouterEvent(
        RouterDisconnected{absl::UnavailableError("the stream broke"), stream->router}));
  const bool lasted = stream->accepted && agenda_->now_us() - dialler.opened_us > kMaxPauseUs;
  dialler.pause_us = lasted ? kMinPauseUs : std::min(2 * dialler.pause_us, kMaxPauseUs);
  agenda_->Add(agenda_->now_us() + dialler.pause_us, What::kDial, Subject(stream->node),
               ++dialler.stamp);
}

// --- the router's end

void ControlWire::Front(FrontEvent event) {
  front_.push_back(std::move(event));
  wake_front_();
}

void ControlWire::DeliverUp(uint64_t id) {
  Stream* const stream = Find(id);
  if (stream == nullptr || stream->up.empty() || up_blocked_[stream->node]) return;
  if (stream->up.front().due_us > agenda_->now_us()) return;
  auto what = std::move(stream->up.front().what);
  stream->up.pop_front();
  agenda_->Happened(What::kControlUp, stream->node, what.index());
  if (!stream->seen) {
    stream->seen = true;
    if (std::holds_alternative<Lost>(what)) return;
    if (const auto older = newest_.find(stream->worker); older != newest_.end())
      EndAtRouter(Find(older->second));
    newest_[stream->worker] = id;
    stream->router_open = true;
    Front(StreamOpened{id, stream->worker});
    stream->router = router_;
    if (stream->worker_open) PushDown(stream, RouterConnected{stream->router, stream->name()});
  }
  if (!stream->router_open) return;
  if (auto* report = std::get_if<WorkerReport>(&what))
    Front(StreamReported{id, stream->worker, std::move(*report)});
  else
    EndAtRouter(stream);
}

void ControlWire::EndAtRouter(Stream* stream) {
  if (stream == nullptr || !stream->router_open) return;
  stream->router_open = false;
  if (const auto it = newest_.find(stream->worker); it != newest_.end() && it->second == stream->id)
    newest_.erase(it);
  Front(StreamLost{stream->id, stream->worker});
  if (stream->worker_open) LoseDown(stream);
}

bool ControlWire::TakeFrontEvents(std::deque<FrontEvent>* out) {
  for (const FrontEvent& event : front_) {
    if (const auto* opened = std::get_if<StreamOpened>(&event))
      taken_[opened->worker] = opened->stream;
    else if (const auto* lost = std::get_if<StreamLost>(&event))
      taken_.erase(lost->worker);
  }
  *out = std::exchange(front_, {});
  return !out->empty();
}

void ControlWire::Send(Incarnation worker, std::vector<RouterMessage> messages) {
  const auto taken = taken_.find(worker);
  if (taken == taken_.end()) return;
  Stream* const stream = Find(taken->second);
  if (stream == nullptr || !stream->router_open || !stream->worker_open) return;
  PushDown(stream, RouterMessages{std::move(messages), stream->router});
}

void ControlWire::Close(Incarnation worker) {
  const auto taken = taken_.find(worker);
  if (taken != taken_.end()) EndAtRouter(Find(taken->second));
}

void ControlWire::OnRouterKilled() {
  router_up_ = false;
  for (auto& [id, stream] : streams_) {
    stream.router_open = false;
    stream.seen = true;  // or refused
    stream.up.clear();
    if (stream.worker_open) LoseDown(&stream);
  }
  newest_.clear();
  taken_.clear();
  front_.clear();
}

// --- faults

void ControlWire::LosePages(int node, WorkerReport* report) {
  std::erase_if(report->events, [&](const WorkerEvent& event) {
    if (!std::holds_alternative<CachedPages>(event)) return false;
    lost_pages_[node] = page_losses_.Percent(swarm_.lost_pages_percent);
    n_lost_pages_ += lost_pages_[node];
    return static_cast<bool>(lost_pages_[node]);
  });
}

void ControlWire::LoseUp(Stream* stream) {
  const size_t n_kept = random_->Below(stream->up.size() + 1);
  while (stream->up.size() > n_kept) stream->up.pop_back();
  if (stream->router_open || !stream->seen) PushUp(stream, Lost{}, agenda_->now_us());
}

void ControlWire::LoseDown(Stream* stream) {
  const size_t n_kept = random_->Below(stream->down.size() + 1);
  while (stream->down.size() > n_kept) stream->down.pop_back();
  PushDown(stream, RouterDisconnected{absl::UnavailableError("the stream broke"), stream->router});
}

bool ControlWire::BreakAny() {
  std::vector<Stream*> open;
  for (auto& [id, stream] : streams_)
    if (stream.worker_open) open.push_back(&stream);
  if (open.empty()) return false;
  Stream* const stream = open[random_->Below(open.size())];
  Break(stream->node);
  return true;
}

void ControlWire::Break(int node) {
  for (auto& [id, stream] : streams_) {
    if (stream.node != node || !stream.worker_open) continue;
    if (stream.router_open || !stream.seen) LoseUp(&stream);
    LoseDown(&stream);
  }
}

void ControlWire::SetBlocked(int node, bool up, bool down) {
  up_blocked_[node] = up;
  down_blocked_[node] = down;
  if (up || down)
    OnPaused(node);
  else if (!(*nodes_)[node]->paused())
    OnResumed(node);
}

// Either end pings; no answer has come since the silence began.
void ControlWire::KeepaliveCheck(uint64_t id, int node) {
  Stream* const stream = Find(id);
  if (stream == nullptr || agenda_->now_us() - silent_since_us_[node] < swarm_.keepalive_us) return;
  agenda_->Happened(What::kKeepalive, node);
  const bool stopped = (*nodes_)[node]->paused();
  if (stream->router_open) EndAtRouter(stream);
  if (stream->worker_open && !stopped) {
    LoseUp(stream);
    EndAtWorker(stream);
  }
}

bool ControlWire::Connected(int node) const {
  const auto it = streams_.find(diallers_[node].stream);
  return it != streams_.end() && it->second.accepted && it->second.router_open;
}

size_t ControlWire::LongestQueue() const {
  size_t longest = front_.size();
  for (const auto& [id, stream] : streams_)
    longest = std::max({longest, stream.up.size(), stream.down.size()});
  return longest;
}

void ControlWire::Prune() {
  std::erase_if(streams_, [](const auto& entry) { return entry.second.over(); });
}

}  // namespace baton::sim
