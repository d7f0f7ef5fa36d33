// Calls whose answer is text work alone: done at once if the body is short, else on the pool, and
// not at all when the client has gone before its turn. Front thread, but for the work.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "server/api/routes.h"
#include "server/api/text_pool.h"
#include "server/http/event_loop.h"

namespace baton {

class TextCalls {
 public:
  using Work = std::function<HttpReply(const std::string& body)>;           // any thread
  using Reply = std::function<void(const ApiCall& call, HttpReply reply)>;  // front thread, once

  // loop and pool must outlive it, and the loop must not run any more when it goes. inline_bytes:
  // of a body that is worked on at once.
  TextCalls(EventLoop* loop, TextPool* pool, int64_t inline_bytes)
      : loop_(loop), pool_(pool), inline_bytes_(inline_bytes) {}

  // `busy`: the reply if the pool is full.
  void Run(ApiCall call, Work work, HttpReply busy, Reply reply);
  void OnGone(ExchangeId id);

 private:
  struct Waiting {
    ApiCall call;
    Reply reply;
    TextPool::JobId job = 0;
  };

  EventLoop* loop_;
  TextPool* pool_;
  const int64_t inline_bytes_;
  absl::flat_hash_map<ExchangeId, Waiting> waiting_;
};

}  // namespace baton
