#include "server/http/hangup_watch.h"

#include <sys/epoll.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/check.h"

namespace baton {

namespace asio = boost::asio;

struct HangupWatch::State : std::enable_shared_from_this<HangupWatch::State> {
  explicit State(asio::io_context& context) : epoll(context, ::epoll_create1(EPOLL_CLOEXEC)) {}

  void Wait();
  void Take();

  asio::posix::stream_descriptor epoll;
  absl::flat_hash_map<int, std::function<void()>> watched;  // by socket
};

void HangupWatch::State::Wait() {
  epoll.async_wait(asio::posix::stream_descriptor::wait_read,
                   [self = shared_from_this()](const boost::system::error_code& ec) {
                     if (ec) return;  // closed
                     self->Take();
                     self->Wait();
                   });
}

void HangupWatch::State::Take() {
  std::array<epoll_event, 64> events;
  const int n = ::epoll_wait(epoll.native_handle(), events.data(), events.size(), 0);
  for (int i = 0; i < n; ++i) {
    const auto found = watched.find(events[static_cast<size_t>(i)].data.fd);
    if (found == watched.end()) continue;  // removed by one before it
    const std::function<void()> on_hangup = std::move(found->second);
    ::epoll_ctl(epoll.native_handle(), EPOLL_CTL_DEL, found->first, nullptr);
    watched.erase(found);
    on_hangup();
  }
}

HangupWatch::HangupWatch(EventLoop* loop) : state_(std::make_shared<State>(loop->context())) {
  BATON_CHECK(state_->epoll.native_handle() >= 0);
  state_->Wait();
}

HangupWatch::~HangupWatch() {
  boost::system::error_code ignored;
  state_->epoll.close(ignored);
  state_->watched.clear();
}

void HangupWatch::Add(int socket, bool half_closed_is_fine, std::function<void()> on_hangup) {
  epoll_event event{};
  if (!half_closed_is_fine) event.events = EPOLLRDHUP;  // errors and ends are always told
  event.data.fd = socket;
  if (::epoll_ctl(state_->epoll.native_handle(), EPOLL_CTL_ADD, socket, &event) != 0) return;
  state_->watched[socket] = std::move(on_hangup);
}

void HangupWatch::Remove(int socket) {
  if (state_->watched.erase(socket) > 0)
    ::epoll_ctl(state_->epoll.native_handle(), EPOLL_CTL_DEL, socket, nullptr);
}

}  // namespace baton
