// Text work of calls: done at once if the body is short, else on the pool, and not at all when the
// client has gone before its turn. Front thread, but for the work.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "server/api/text_pool.h"
#include "server/http/event_loop.h"
#include "server/http/http_server.h"

namespace baton {

class TextCalls {
 public:
  using Finish = std::function<void()>;                         // front thread
  using Work = std::function<Finish(const std::string& body)>;  // any thread
  struct Caller {
    ExchangeId exchange = 0;
    ClientId client{};
  };

  // loop and pool must outlive it, and the loop must not run any more when it goes. inline_bytes:
  // of a body that is worked on at once.
  TextCalls(EventLoop* loop, TextPool* pool, int64_t inline_bytes)
      : loop_(loop), pool_(pool), inline_bytes_(inline_bytes) {}

  // Has the work done, and then what it returns, unless the client has gone. False: the pool is
  // full, and nothing will be done.
  [[nodiscard]] bool Run(const Caller& caller, std::string body, Work work);
  // Has work done on the pool that is long whatever the body is. bytes: that it holds while it
  // waits. False: as Run.
  [[nodiscard]] bool RunOnPool(const Caller& caller, size_t bytes, std::function<Finish()> work);
  // Drops the call's work; other work may be given for it afterwards.
  void OnGone(ExchangeId id);

 private:
  EventLoop* loop_;
  TextPool* pool_;
  const int64_t inline_bytes_;
  struct Waiting {
    uint64_t number = 0;  // of the call's job among all
    TextPool::JobId job = 0;
  };
  absl::flat_hash_map<ExchangeId, Waiting> waiting_;
  uint64_t n_jobs_ = 0;
};

}  // namespace baton
