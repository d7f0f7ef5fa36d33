#include "bench/relay/rank_inflows.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr std::chrono::seconds kPatience(300);  // max time without an arrival

}  // namespace

double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

RankInflows::RankInflows(const std::vector<RankLink>& in, const std::vector<RankLink>& out,
                         int n_planes, std::function<void(int, int, int)> on_pages)
    : n_planes_(n_planes), on_pages_(std::move(on_pages)) {
  for (const RankLink& link : in) inflows_.push_back({link});
  std::sort(inflows_.begin(), inflows_.end(),
            [](const Inflow& a, const Inflow& b) { return a.link.first_page < b.link.first_page; });
  for (const RankLink& link : out) outgoing_.push_back(link.ticket);
}

// Reports new arrivals plane by plane: the pages of the earlier partial plane, whole planes, and
// the pages of the current partial plane.
void RankInflows::Advance(Inflow& inflow, const InflowArrived& arrived) {
  const Inflow before = inflow;
  inflow.n_planes = arrived.n_planes;
  inflow.n_pages = arrived.n_pages;
  for (int plane = before.n_planes; plane <= arrived.n_planes && plane < n_planes_; ++plane) {
    const int from = before.Pages(plane), to = inflow.Pages(plane);
    if (to > from) on_pages_(plane, inflow.link.first_page + from, to - from);
  }
}

void RankInflows::OnEvent(const TransferEvent& event) {
  std::lock_guard lock(mutex_);
  if (const auto* arrived = std::get_if<InflowArrived>(&event)) {
    for (Inflow& inflow : inflows_) {
      if (TicketOf(inflow.link) == arrived->ticket_id) Advance(inflow, *arrived);
    }
    arrived_ = MonotonicSeconds();
  } else if (const auto* failed = std::get_if<InflowFailed>(&event)) {
    failure_.Update(failed->status);
  } else if (const auto* ended = std::get_if<HandoffEnded>(&event)) {
    std::erase(outgoing_, ended->ticket_id.high);
    failure_.Update(ended->status);
  }
  changed_.notify_all();
}

InflowProgress RankInflows::ProgressLocked() const {
  InflowProgress there{.planes = n_planes_};
  for (const Inflow& inflow : inflows_) there.planes = std::min(there.planes, inflow.n_planes);
  for (const Inflow& inflow : inflows_) {
    if (inflow.link.first_page != there.pages) break;
    there.pages += inflow.Pages(there.planes);
    if (inflow.Pages(there.planes) < inflow.link.n_pages) break;
  }
  return there;
}

InflowProgress RankInflows::progress() {
  std::lock_guard lock(mutex_);
  return ProgressLocked();
}

absl::Status RankInflows::Wait(const std::function<bool()>& is_done) {
  std::unique_lock lock(mutex_);
  if (is_done() && failure_.ok()) return absl::OkStatus();
  const double begin = MonotonicSeconds();
  const bool done = changed_.wait_for(lock, kPatience, [&] { return !failure_.ok() || is_done(); });
  waited_ += MonotonicSeconds() - begin;
  RETURN_IF_ERROR(failure_);
  if (!done) return absl::DeadlineExceededError("no KV arrived for 300 s");
  return absl::OkStatus();
}

absl::Status RankInflows::AwaitPlane(int plane) {
  return Wait([&] {
    return std::all_of(inflows_.begin(), inflows_.end(),
                       [&](const Inflow& inflow) { return inflow.n_planes > plane; });
  });
}

absl::Status RankInflows::AwaitPages(int plane, int first, int n) {
  return Wait([&] {
    return std::all_of(inflows_.begin(), inflows_.end(), [&](const Inflow& inflow) {
      const RankLink& link = inflow.link;
      const bool is_apart = link.first_page >= first + n || link.first_page + link.n_pages <= first;
      return is_apart || inflow.n_planes > plane;
    });
  });
}

absl::Status RankInflows::AwaitMore(const InflowProgress& there) {
  return Wait([&] { return ProgressLocked() > there; });
}

absl::Status RankInflows::AwaitCells(int64_t n) {
  return Wait([&] {
    const Inflow& inflow = inflows_.front();
    return int64_t{inflow.n_planes} * inflow.link.n_pages + inflow.n_pages >= n;
  });
}

absl::Status RankInflows::AwaitEnd(double* arrived) {
  RETURN_IF_ERROR(AwaitPlane(n_planes_ - 1));
  {
    std::lock_guard lock(mutex_);
    *arrived = inflows_.empty() ? 0 : arrived_;
  }
  return Wait([&] { return outgoing_.empty(); });
}

}  // namespace baton
