// The seam between the HTTP front and whatever computes tokens: the router with its workers, or a
// test's own answers. Everything on the front thread.
#pragma once

#include "common/ids.h"
#include "common/status.h"
#include "router/router_messages.h"

namespace baton {

class GeneratorListener {
 public:
  virtual ~GeneratorListener() = default;
  virtual void OnToken(const EmitToken& token) = 0;
  virtual void OnEnd(const EmitEnd& end) = 0;  // exactly once per accepted request
  virtual void OnReleased(const EmitReleased&) {}
};

class Generator {
 public:
  virtual ~Generator() = default;
  // Accepts the request, or refuses it at once with the errors of Router::Submit. Events come
  // later, never from inside the call.
  virtual absl::StatusOr<RequestId> Submit(GenerateRequest request) = 0;
  virtual void Cancel(RequestId id) = 0;  // its OnEnd still comes
  virtual void Drain() = 0;               // refuses new requests; running ones go on
  virtual ClusterView View() const = 0;
  virtual std::vector<WorkerView> Workers() const = 0;
  // Nothing: the request is unknown or has ended, or nobody can tell.
  virtual std::optional<RequestView> Progress(RequestId) const { return std::nullopt; }
};

}  // namespace baton
