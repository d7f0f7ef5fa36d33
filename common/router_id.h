// Ids of routers, and of the requests that each of them mints. A worker may serve several routers;
// a request's id tells whose it is, wherever that must be known: at the worker for what it reports,
// at the transfer room for a promise whose request has not come yet. Pure functions, any thread.
#pragma once

#include <cstdint>

#include "common/ids.h"

namespace baton {

using RouterId = uint32_t;  // one life of a router: random, below 2^24, never 0

inline constexpr int kSerialBits = 40;  // of a request's id, below the router's

constexpr RouterId MakeRouterId(uint64_t random) {
  constexpr uint64_t kMaxRouter = (uint64_t{1} << (64 - kSerialBits)) - 1;
  return static_cast<RouterId>(1 + random % kMaxRouter);
}

// serial: 1, 2, ...: of the router's requests.
constexpr RequestId MakeRequestId(RouterId router, uint64_t serial) {
  return uint64_t{router} << kSerialBits | (serial & ((uint64_t{1} << kSerialBits) - 1));
}

constexpr RouterId RouterOf(RequestId request) {
  return static_cast<RouterId>(request >> kSerialBits);
}

}  // namespace baton
