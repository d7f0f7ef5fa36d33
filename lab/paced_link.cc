#include "lab/paced_link.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kFall = 100;  // LinkPace::falls_after

int64_t SteadyUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

PacedLink::PacedLink(std::unique_ptr<Link> link, const LinkPace& pace,
                     std::function<int64_t()> now_us)
    : link_(std::move(link)), pace_(pace), now_us_(now_us ? std::move(now_us) : SteadyUs) {
  timer_fd_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  wake_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  BATON_CHECK(timer_fd_ >= 0 && wake_fd_ >= 0);
  for (const int fd : {timer_fd_, link_->wake_fd()}) {
    if (fd < 0) continue;  // a link of a simulation has none
    epoll_event event{};
    event.events = EPOLLIN;
    BATON_CHECK(::epoll_ctl(wake_fd_, EPOLL_CTL_ADD, fd, &event) == 0);
  }
}

PacedLink::~PacedLink() {
  ::close(wake_fd_);
  ::close(timer_fd_);
}

void PacedLink::SetPace(const LinkPace& pace) {
  std::lock_guard lock(pace_mutex_);
  pace_ = pace;
}

LinkPace PacedLink::pace() const {
  std::lock_guard lock(pace_mutex_);
  return pace_;
}

int64_t PacedLink::Pass(const LinkPace& pace, uint64_t length, int64_t* free_us) const {
  const int64_t begin_us = std::max(now_us_(), *free_us);
  if (pace.bytes_per_second <= 0) return begin_us;
  const double begin = static_cast<double>(begin_us) * 1e-6;
  const double end =
      pace.noise.Through(pace.worker, begin, static_cast<double>(length) / pace.bytes_per_second);
  *free_us = begin_us + static_cast<int64_t>((end - begin) * 1e6 + 0.5);
  return *free_us;
}

int64_t PacedLink::PassIn(uint64_t length) {
  LinkPace pace = this->pace();
  if (pace.falls_after > 0 && taken_in_ >= pace.falls_after) pace.bytes_per_second /= kFall;
  taken_in_ += static_cast<int64_t>(length);
  return Pass(pace, length, &in_free_us_);
}

// Nothing overtakes what its connection holds already.
void PacedLink::Hold(ConnectionId connection, int64_t due_us,
                     std::variant<std::string, Chunk> what) {
  std::deque<Outgoing>& held = outgoing_[connection];
  if (!held.empty()) due_us = std::max(due_us, held.back().due_us);
  held.push_back({due_us, std::move(what)});
}

void PacedLink::Send(ConnectionId connection, std::string message) {
  Hold(connection, now_us_() + pace().latency_us, std::move(message));
  SendDue(now_us_());
}

void PacedLink::Announce(ConnectionId connection, OperationId operation,
                         const wire::ChunkHeaderBytes& header, const std::byte* payload,
                         uint64_t length) {
  const LinkPace pace = this->pace();
  Hold(connection, Pass(pace, length, &out_free_us_) + pace.latency_us,
       Chunk{operation, header, payload, length});
  SendDue(now_us_());
}

void PacedLink::Dispatch(ConnectionId connection, std::variant<std::string, Chunk> what) {
  if (auto* message = std::get_if<std::string>(&what)) {
    link_->Send(connection, std::move(*message));
    return;
  }
  const Chunk& chunk = std::get<Chunk>(what);
  link_->Announce(connection, chunk.operation, chunk.header, chunk.payload, chunk.length);
}

bool PacedLink::SendDue(int64_t now_us) {
  bool any = false;
  for (auto at = outgoing_.begin(); at != outgoing_.end();) {
    std::deque<Outgoing>& held = at->second;
    for (; !held.empty() && held.front().due_us <= now_us; held.pop_front(), any = true) {
      Dispatch(at->first, std::move(held.front().what));
    }
    at = held.empty() ? outgoing_.erase(at) : std::next(at);
  }
  for (; !receives_.empty() && receives_.front().due_us <= now_us; any = true) {
    const Receive receive = receives_.front();
    receives_.pop_front();
    link_->Accept(receive.announcement, receive.operation, receive.destination);
  }
  return any;
}

void PacedLink::Accept(AnnouncementId announcement, OperationId operation, std::byte* destination) {
  const auto offer = offers_.find(announcement);
  if (offer == offers_.end()) {  // its connection has been lost, which the owner will hear of
    ended_.push_back(ChunkLanded{operation, false});
    return;
  }
  const int64_t due_us = PassIn(offer->second.length);
  receives_.push_back({due_us, offer->second.connection, announcement, operation, destination});
  offers_.erase(offer);
  SendDue(now_us_());
}

void PacedLink::Refuse(AnnouncementId announcement) {
  if (offers_.erase(announcement) > 0) link_->Refuse(announcement);
}

void PacedLink::Close(ConnectionId connection) {
  // Held messages go out before the end: by Link's contract only chunks are given up.
  const auto held = outgoing_.find(connection);
  if (held != outgoing_.end()) {
    for (Outgoing& outgoing : held->second) {
      if (auto* message = std::get_if<std::string>(&outgoing.what)) {
        link_->Send(connection, std::move(*message));
      }
    }
  }
  Forget(connection);
  link_->Close(connection);
}

// Held chunks of a connection that has ended report, as those under way do.
void PacedLink::Forget(ConnectionId connection) {
  const auto held = outgoing_.find(connection);
  if (held != outgoing_.end()) {
    for (const Outgoing& outgoing : held->second) {
      const Chunk* chunk = std::get_if<Chunk>(&outgoing.what);
      if (chunk != nullptr) ended_.push_back(ChunkSent{chunk->operation});
    }
    outgoing_.erase(held);
  }
  std::erase_if(receives_, [&](const Receive& receive) {
    if (receive.connection != connection) return false;
    ended_.push_back(ChunkLanded{receive.operation, false});
    return true;
  });
  std::erase_if(offers_, [&](const auto& offer) { return offer.second.connection == connection; });
}

void PacedLink::Record(const LinkEvent& event) {
  if (const auto* announced = std::get_if<ChunkAnnounced>(&event)) {
    offers_[announced->announcement] = {announced->connection, announced->length};
  } else if (const auto* lost = std::get_if<ConnectionLost>(&event)) {
    Forget(lost->connection);
  }
}

bool PacedLink::Poll(std::vector<LinkEvent>* events) {
  bool any = SendDue(now_us_());
  const size_t first = events->size();
  any |= link_->Poll(events);
  for (size_t i = first; i < events->size(); ++i) Record((*events)[i]);
  any |= !ended_.empty();
  for (LinkEvent& event : ended_) events->push_back(std::move(event));
  ended_.clear();
  return any;
}

int64_t PacedLink::next_due_us() const {
  if (!ended_.empty()) return now_us_();
  int64_t due_us = receives_.empty() ? kNever : receives_.front().due_us;
  for (const auto& [connection, held] : outgoing_) due_us = std::min(due_us, held.front().due_us);
  return due_us;
}

bool PacedLink::Arm() {
  const int64_t due_us = next_due_us();
  itimerspec timer{};  // zero: off
  if (due_us != kNever) {
    const int64_t wait_us = due_us - now_us_();
    if (wait_us <= 0) return false;
    timer.it_value.tv_sec = wait_us / 1'000'000;
    timer.it_value.tv_nsec = wait_us % 1'000'000 * 1'000;
  }
  BATON_CHECK(::timerfd_settime(timer_fd_, 0, &timer, nullptr) == 0);  // and no longer readable
  return link_->Arm();
}

bool PacedLink::idle() const {
  return outgoing_.empty() && receives_.empty() && ended_.empty() && link_->idle();
}

LinkMaker Paced(LinkMaker make_link, const LinkPace& pace) {
  if (!pace.is_set()) return make_link;
  return [make_link = std::move(make_link), pace]() -> absl::StatusOr<std::unique_ptr<Link>> {
    ASSIGN_OR_RETURN(std::unique_ptr<Link> link, make_link());
    return std::make_unique<PacedLink>(std::move(link), pace);
  };
}

}  // namespace baton
