// Commands to the transfer room, in order and at once, each with the fence of all that was
// submitted to the engine before it: so a page is neither read nor written for another worker
// before the engine has written or zeroed it, and no command waits for the engine. Engine thread.
#pragma once

#include <functional>
#include <utility>
#include <variant>

#include "engine/step/backend.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

class FencedCommands {
 public:
  FencedCommands(Backend* backend, std::function<void(TransferCommand)> post)
      : backend_(backend), post_(std::move(post)) {}

  void Add(TransferCommand command) {
    std::visit(
        [this]<typename Command>(Command& c) {
          if constexpr (requires { c.after; }) c.after = backend_->submitted().at;
        },
        command);
    post_(std::move(command));
  }

 private:
  Backend* const backend_;
  const std::function<void(TransferCommand)> post_;
};

}  // namespace baton
