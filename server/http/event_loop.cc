#include "server/http/event_loop.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <optional>

#include "common/clock.h"

namespace baton {

namespace asio = boost::asio;

struct EventLoop::State {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::optional<asio::signal_set> signals, reload_signal;
  std::function<void()> on_stop, on_reload;
};

struct EventLoop::Timer::State {
  explicit State(asio::io_context& context) : timer(context) {}
  asio::steady_timer timer;
  uint64_t generation = 0;  // a call that was replaced is not made
};

EventLoop::EventLoop() : state_(std::make_unique<State>()) {}
EventLoop::~EventLoop() = default;

void EventLoop::Run() { state_->context.run(); }
void EventLoop::Stop() { state_->context.stop(); }
void EventLoop::Post(std::function<void()> work) { asio::post(state_->context, std::move(work)); }
asio::io_context& EventLoop::context() { return state_->context; }

namespace {
void AwaitSignal(asio::signal_set* signals, const std::function<void()>* handler) {
  signals->async_wait([=](const boost::system::error_code& ec, int) {
    if (ec) return;
    (*handler)();
    AwaitSignal(signals, handler);
  });
}
}  // namespace

void EventLoop::OnStopSignal(std::function<void()> handler) {
  state_->on_stop = std::move(handler);
  state_->signals.emplace(state_->context, SIGTERM, SIGINT);
  AwaitSignal(&*state_->signals, &state_->on_stop);
}

void EventLoop::OnReloadSignal(std::function<void()> handler) {
  state_->on_reload = std::move(handler);
  state_->reload_signal.emplace(state_->context, SIGHUP);
  AwaitSignal(&*state_->reload_signal, &state_->on_reload);
}

EventLoop::Timer::Timer(EventLoop* loop) : state_(std::make_shared<State>(loop->context())) {}
EventLoop::Timer::~Timer() { Cancel(); }

void EventLoop::Timer::Set(absl::Time when, std::function<void()> work) {
  const uint64_t generation = ++state_->generation;
  if (when == absl::InfiniteFuture()) {
    state_->timer.cancel();
    return;
  }
  state_->timer.expires_after(
      absl::ToChronoNanoseconds(std::max(when - MonotonicNow(), absl::ZeroDuration())));
  state_->timer.async_wait(
      [state = state_, generation, work = std::move(work)](const boost::system::error_code& ec) {
        if (!ec && state->generation == generation) work();
      });
}

void EventLoop::Timer::Cancel() {
  ++state_->generation;
  state_->timer.cancel();
}

}  // namespace baton
