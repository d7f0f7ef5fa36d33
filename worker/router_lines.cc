#include "worker/router_lines.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

namespace baton {
namespace {

constexpr absl::Duration kMaxLoadInterval = absl::Seconds(1);
constexpr absl::Duration kMinLoadInterval = absl::Milliseconds(20);

bool SameLoad(const WorkerLoad& a, const WorkerLoad& b) {
  return a.prefill_queued_tokens == b.prefill_queued_tokens && a.decode_rows == b.decode_rows &&
         a.decode_waiting == b.decode_waiting && a.pages_free == b.pages_free &&
         a.draining == b.draining;
}

// Nothing: the event is about no request.
std::optional<RouterId> OwnerOf(const WorkerEvent& event) {
  return std::visit(
      []<typename Event>(const Event& of) -> std::optional<RouterId> {
        if constexpr (requires { of.request_id; }) return RouterOf(of.request_id);
        return std::nullopt;
      },
      event);
}

}  // namespace

void RouterLines::Connect(const RouterConnected& connected) {
  Line& line = lines_[connected.router];
  line = {};
  line.stream = connected.stream;
  TellPages(connected.router);
}

void RouterLines::Disconnect(RouterId router) {
  lines_.erase(router);
  if (log_ != nullptr) log_->Leave(router);
}

void RouterLines::DisconnectAll() {
  while (!lines_.empty()) Disconnect(lines_.begin()->first);
}

void RouterLines::TellPages(RouterId router) {
  if (log_ != nullptr && Has(router)) log_->Restart(router);
}

void RouterLines::Report(WorkerEvent event) {
  const std::optional<RouterId> owner = OwnerOf(event);
  if (!owner) return;
  if (const auto line = lines_.find(*owner); line != lines_.end())
    line->second.report.events.push_back(std::move(event));
}

absl::Time RouterLines::Line::LoadDue() const {
  return load_reported + (load_changed ? kMinLoadInterval : kMaxLoadInterval);
}

void RouterLines::ReportLoad(const WorkerLoad& load, absl::Time now) {
  for (auto& [router, line] : lines_) {
    line.load_changed = !SameLoad(load, line.reported_load);
    if (now < line.LoadDue()) continue;
    line.load_reported = now;
    line.reported_load = load;
    line.load_changed = false;
    WorkerLoad told = load;
    told.clock_us = absl::ToUnixMicros(now);
    line.report.events.emplace_back(std::move(told));
  }
}

absl::Time RouterLines::LoadDue() const {
  absl::Time due = absl::InfiniteFuture();
  for (const auto& [router, line] : lines_) due = std::min(due, line.LoadDue());
  return due;
}

bool RouterLines::ReportPages() {
  if (log_ == nullptr) return false;
  bool is_more = false;
  for (auto& [router, line] : lines_) {
    if (log_->is_told(router)) continue;
    line.report.events.emplace_back(log_->Take(router));
    is_more = is_more || !log_->is_told(router);
  }
  return is_more;
}

void RouterLines::Send(const std::function<void(uint64_t stream, WorkerReport)>& send) {
  for (auto& [router, line] : lines_) {
    if (line.report.events.empty()) continue;
    send(line.stream, std::exchange(line.report, {}));
  }
}

}  // namespace baton
