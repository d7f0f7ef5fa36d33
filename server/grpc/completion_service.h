// The gRPC API over the network: calls of baton.v1.Completion, beside them grpc.health.v1 and
// server reflection. This shell reads, queues and writes; what a call means is said by RpcMethods,
// and what becomes of it is the front's business (ApiFront), as for HTTP.
//
//   gRPC threads -> bounded queue of calls and of calls whose client has gone -> front thread
//   front thread -> Reply, Write -> bounded text per call -> one write in flight
//
// Bounds: more than max_calls under way, or max_waiting_bytes of requests that the front thread has
// not taken, are refused with RESOURCE_EXHAUSTED; a client that leaves more than max_unsent bytes
// unread, or reads nothing for write_timeout, is cancelled. A client that cancels, breaks its
// connection or lets its deadline pass is ApiFront::OnGone.
#pragma once

#include <memory>

#include "common/status.h"
#include "server/api/api_front.h"
#include "server/grpc/grpc_options.h"
#include "server/http/event_loop.h"
#include "server/http/exchange_writer.h"

namespace baton {

class CompletionService : public ExchangeWriter {
 public:
  // Binds and listens; port 0 picks one. InvalidArgument: as CheckGrpc, or a file of TLS
  // cannot be read. Unavailable: host and port cannot be bound; errors name them. Loop and front
  // must outlive the server.
  static absl::StatusOr<std::unique_ptr<CompletionService>> Start(EventLoop* loop,
                                                                  const GrpcOptions& options,
                                                                  ApiFront* front);
  // Cancels all calls, without OnGone, and waits for gRPC's threads. The loop does not run any
  // more.
  ~CompletionService() override = default;
  CompletionService(const CompletionService&) = delete;
  CompletionService& operator=(const CompletionService&) = delete;

  virtual int port() const = 0;
  virtual int n_calls() = 0;  // under way
  // Sets what grpc.health.v1 answers: SERVING or NOT_SERVING; the latter for ever after Drain.
  virtual void SetServing(bool serving) = 0;
  virtual void ReloadCertificate() = 0;  // from its files; new connections get it. Loop's thread

 protected:
  CompletionService() = default;
};

}  // namespace baton
