// Commands to the transfer room, in order, each held until everything is reached that was submitted
// to the engine before it: a page is neither read nor written for another worker before the engine
// has written or zeroed it. Engine thread.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "engine/step/backend.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

class HeldCommands {
 public:
  HeldCommands(Backend* backend, std::function<void(TransferCommand)> post)
      : backend_(backend), post_(std::move(post)) {}

  void Add(TransferCommand command) {
    held_.push_back({backend_->submitted(), std::move(command)});
    Release();
  }
  // Posts those that need not be held any more.
  void Release() {
    for (; !held_.empty() && backend_->reached(held_.front().after); held_.pop_front())
      post_(std::move(held_.front().command));
  }
  bool empty() const { return held_.empty(); }
  Fence next() const { return held_.front().after; }  // not empty

 private:
  struct Held {
    Fence after;
    TransferCommand command;
  };
  Backend* const backend_;
  const std::function<void(TransferCommand)> post_;
  std::deque<Held> held_;
};

}  // namespace baton
