#include "engine/cuda/device/emulated/happens_before.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {

// --- timelines

int HappensBefore::AddStream(std::string_view name) {
  const std::lock_guard lock(mutex_);
  names_.push_back("stream " + std::string(name));
  clocks_.emplace_back();
  return static_cast<int>(names_.size()) - 1;
}

void HappensBefore::ActAs(std::string_view host_thread) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(names_.begin(), names_.end(), host_thread);
  int timeline = static_cast<int>(found - names_.begin());
  if (found == names_.end()) {
    names_.emplace_back(host_thread);
    clocks_.emplace_back().Tick(timeline);
  }
  host_timelines_[std::this_thread::get_id()] = timeline;
}

std::string HappensBefore::host_thread() {
  const std::lock_guard lock(mutex_);
  return names_[static_cast<size_t>(HostTimeline())];
}

int HappensBefore::HostTimeline() {
  const auto [at, is_new] = host_timelines_.try_emplace(std::this_thread::get_id(), 0);
  if (is_new) {
    at->second = static_cast<int>(names_.size());
    names_.push_back(absl::StrFormat("host thread %d", host_timelines_.size()));
    clocks_.emplace_back().Tick(at->second);
  }
  return at->second;
}

VectorClock HappensBefore::Send() {
  const std::lock_guard lock(mutex_);
  const int host = HostTimeline();
  VectorClock sent = clocks_[static_cast<size_t>(host)];
  clocks_[static_cast<size_t>(host)].Tick(host);  // what it does from now on is not in `sent`
  return sent;
}

void HappensBefore::Receive(const VectorClock& sent) {
  const std::lock_guard lock(mutex_);
  clocks_[static_cast<size_t>(HostTimeline())].Join(sent);
}

VectorClock HappensBefore::Submit(int stream) {
  const VectorClock host = Send();
  const std::lock_guard lock(mutex_);
  VectorClock& clock = clocks_[static_cast<size_t>(stream)];
  clock.Join(host);
  clock.Tick(stream);
  return clock;
}

void HappensBefore::Wait(int stream, const VectorClock& event) {
  const std::lock_guard lock(mutex_);
  clocks_[static_cast<size_t>(stream)].Join(event);
}

// --- accesses

void HappensBefore::Access(const Actor& actor, const std::byte* at, int64_t bytes, bool is_write) {
  const std::lock_guard lock(mutex_);
  AccessLocked(actor, at, bytes, is_write);
}

void HappensBefore::HostAccess(const std::byte* at, int64_t bytes, bool is_write) {
  const std::lock_guard lock(mutex_);
  const int host = HostTimeline();
  AccessLocked({host, clocks_[static_cast<size_t>(host)], names_[static_cast<size_t>(host)]}, at,
               bytes, is_write);
}

void HappensBefore::AccessLocked(const Actor& actor, const std::byte* at, int64_t bytes,
                                 bool is_write) {
  BATON_CHECK(bytes >= 0);
  if (bytes == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(at);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  const Past now{actor.timeline, actor.clock.of(actor.timeline), actor.name};
  for (auto range = First(begin, end); range != ranges_.end() && range->first < end; ++range) {
    Range& r = range->second;
    Meet(actor, is_write, r.write, true, range->first, r.end);
    if (is_write) {
      for (const Past& read : r.reads) Meet(actor, true, read, false, range->first, r.end);
      r.write = now;
      r.reads.clear();
      continue;
    }
    const auto own = std::find_if(r.reads.begin(), r.reads.end(), [&](const Past& read) {
      return read.timeline == actor.timeline;
    });
    if (own == r.reads.end()) {
      r.reads.push_back(now);
    } else if (own->tick <= now.tick) {
      *own = now;
    }
  }
}

void HappensBefore::Meet(const Actor& actor, bool is_write, const Past& before, bool was_write,
                         uintptr_t from, uintptr_t end) {
  if (before.timeline < 0 || before.tick <= actor.clock.of(before.timeline)) return;
  std::string what = "memory";
  uintptr_t begin = 0;
  if (auto owner = owners_.upper_bound(from); owner != owners_.begin()) {
    --owner;
    if (from < owner->second.end) {
      what = owner->second.what;
      begin = owner->first;
    }
  }
  const auto verb = [](bool writes) { return writes ? "writes" : "reads"; };
  Add(absl::StrFormat(
      "%s, bytes %d to %d: %s (%s) %s it and does not wait for %s (%s), which %s it", what,
      from - begin, end - begin, actor.name, names_[static_cast<size_t>(actor.timeline)],
      verb(is_write), before.name, names_[static_cast<size_t>(before.timeline)], verb(was_write)));
}

void HappensBefore::Cut(uintptr_t at) {
  auto after = ranges_.upper_bound(at);
  if (after == ranges_.begin()) return;
  auto range = std::prev(after);
  if (range->first == at || range->second.end <= at) return;
  Range rest = range->second;
  range->second.end = at;
  ranges_.emplace_hint(after, at, std::move(rest));
}

HappensBefore::Ranges::iterator HappensBefore::First(uintptr_t begin, uintptr_t end) {
  Cut(begin);
  Cut(end);
  auto next = ranges_.lower_bound(begin);
  for (uintptr_t at = begin; at < end;) {
    if (next == ranges_.end() || next->first > at) {
      const uintptr_t gap_end = next == ranges_.end() ? end : std::min(end, next->first);
      next = ranges_.emplace_hint(next, at, Range{gap_end, {}, {}});
    }
    at = next->second.end;
    ++next;
  }
  return ranges_.find(begin);
}

void HappensBefore::Own(const std::byte* at, int64_t bytes, std::string_view what) {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<uintptr_t>(at);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  Cut(begin);
  Cut(end);
  ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
  owners_.erase(owners_.lower_bound(begin), owners_.lower_bound(end));
  owners_[begin] = {end, std::string(what)};
}

// --- reports

void HappensBefore::Report(std::string finding) {
  const std::lock_guard lock(mutex_);
  Add(std::move(finding));
}

void HappensBefore::OnReport(std::function<void(const std::string&)> told) {
  const std::lock_guard lock(mutex_);
  told_ = std::move(told);
}

void HappensBefore::Add(std::string finding) {
  ++total_;
  if (told_ != nullptr) told_(finding);
  if (reports_.size() < kReports) reports_.push_back(std::move(finding));
}

std::vector<std::string> HappensBefore::reports() const {
  const std::lock_guard lock(mutex_);
  return reports_;
}

int64_t HappensBefore::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

}  // namespace baton
