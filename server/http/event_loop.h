// The one loop of a front thread: sockets, timers and posted work. A thin shell over Asio, so that
// Asio's headers stay in few files. What uses the loop ends before the loop does.
#pragma once

#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace boost::asio {
class io_context;
}

namespace baton {

class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void Run();   // returns after Stop; the caller's thread becomes the loop's
  void Stop();  // any thread
  // Any thread: runs on the loop's thread, after what it does now.
  void Post(std::function<void()> work);
  // SIGTERM and SIGINT call the handler, on the loop's thread, instead of ending the process.
  // Called once, before Run.
  void OnStopSignal(std::function<void()> handler);
  // SIGHUP likewise.
  void OnReloadSignal(std::function<void()> handler);

  boost::asio::io_context& context();  // for sockets of this room

  // One pending call; Set replaces the call that is pending. Loop's thread.
  class Timer {
   public:
    explicit Timer(EventLoop* loop);
    ~Timer();  // cancels
    // when: of MonotonicNow; one that has passed: the loop's next turn; InfiniteFuture: no call.
    void Set(absl::Time when, std::function<void()> work);
    void Cancel();

   private:
    struct State;
    std::shared_ptr<State> state_;
  };

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace baton
