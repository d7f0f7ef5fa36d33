// Tells of sockets whose other end went away although nothing reads them: a connection that owes an
// answer leaves what the client sent ahead where it is, and the end behind those bytes is not seen
// by whoever waits for something to read. One epoll of its own for all of them (EPOLLRDHUP), which
// the loop waits for. Loop's thread.
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
  // (unless half_closed is fine). One watch per socket; Remove before the socket is closed.
  void Add(int socket, bool half_closed_is_fine, std::function<void()> on_hangup);
  void Remove(int socket);  // none: nothing

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace baton
