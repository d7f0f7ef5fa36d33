// Reports sockets whose other end went away while nothing reads them. A connection that owes an
// answer leaves unread the bytes that the client sent ahead, so waiting for something to read never
// shows the end behind these bytes. One epoll (EPOLLRDHUP) serves all sockets; the event loop waits
// for it. The loop must outlive the watch. Loop's thread.
#pragma once

#include <functional>
#include <memory>

#include "server/http/event_loop.h"

namespace baton {

class HangupWatch {
 public:
  explicit HangupWatch(EventLoop* loop);
  ~HangupWatch();
  HangupWatch(const HangupWatch&) = delete;
  HangupWatch& operator=(const HangupWatch&) = delete;

  // Calls on_hangup once, later, when the connection is dead, or the client has shut down its side
  // (unless that is fine). One watch per socket; Remove before the socket is closed. If the system
  // refuses the watch, on_hangup is never called.
  void Add(int socket, bool half_closed_is_fine, std::function<void()> on_hangup);
  void Remove(int socket);  // does nothing for a socket that is not watched

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace baton
