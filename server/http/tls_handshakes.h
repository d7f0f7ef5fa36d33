// TLS handshakes under way: connections of which nothing is known yet. Their number and their time
// are bounded, one step of one handshake is taken per turn of the loop, and a client that speaks
// HTTP without TLS is found out here. Loop's thread.
#pragma once

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "server/http/event_loop.h"
#include "server/http/http_stats.h"
#include "server/http/transport.h"

namespace baton {

class TlsHandshakes {
 public:
  struct Options {
    int max = 0;  // one more makes the oldest end, of an address that has half of them its own
    absl::Duration deadline;  // of a whole handshake
  };
  // secured: the transport of a handshake that is done. plain: of a client that speaks HTTP. The
  // loop must outlive this object, which is not destroyed inside a call of either.
  TlsHandshakes(EventLoop* loop, const Options& options, HttpStats* stats,
                std::function<void(Transport)> secured, std::function<void(Transport)> plain);
  ~TlsHandshakes();  // closes all
  TlsHandshakes(const TlsHandshakes&) = delete;
  TlsHandshakes& operator=(const TlsHandshakes&) = delete;

  void Begin(Transport transport, std::shared_ptr<const TlsContext> context);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace baton
