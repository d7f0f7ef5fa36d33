// Checks at a worker's end of the control wire that a router speaks of its own requests. Pure
// function, any thread.
#pragma once

#include <span>
#include <variant>

#include "common/router_id.h"
#include "common/status.h"
#include "proto/messages.h"

namespace baton {

// Reports about a request go to the router that its id names, so no other one may send it.
// InvalidArgument: one of the messages is about another router's request.
inline absl::Status CheckOwner(std::span<const RouterMessage> messages, RouterId router) {
  for (const RouterMessage& message : messages) {
    const bool is_own = std::visit(
        [router]<typename Message>(const Message& of) {
          if constexpr (requires { of.request_id; }) return RouterOf(of.request_id) == router;
          return true;
        },
        message);
    if (!is_own) return absl::InvalidArgumentError("a message about another router's request");
  }
  return absl::OkStatus();
}

}  // namespace baton
