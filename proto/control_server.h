// The router's end of the control wires: one bidirectional gRPC stream per worker, dialled by the
// worker. This shell parses and queues; decisions are the Router's.
//
//   gRPC threads -> bounded queue of ControlEvent -> TakeEvents on the front thread
//   front thread -> Send -> bounded queue per stream -> one write in flight
//
// A worker proves with a MAC under the cluster key that it belongs to the cluster (membership.h),
// and with a certificate where there is mutual TLS; other peers are refused before a byte of their
// reports is parsed. The events of a worker are exactly
// WorkerConnected, WorkerReported*, WorkerLost; a worker that dials again before its dead stream
// was noticed replaces that stream (WorkerLost of the old one comes first).
//
// Bounds: a stream with `max_unread_reports` reports not yet taken is not read further (the worker
// feels it as flow control); a stream with `max_unsent_messages` waiting is closed, which is
// reported as WorkerLost; more than `max_workers` streams are refused.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/router_id.h"
#include "common/status.h"
#include "common/ticket.h"
#include "proto/cluster_certificate.h"
#include "proto/join_fault.h"
#include "proto/messages.h"

namespace baton {

struct ControlServerOptions {
  // host:port; port 0 picks. Or unix:PATH (unix_control.h), without a certificate.
  std::string address = "127.0.0.1:0";
  ClusterKey key{};
  RouterId router = 0;  // told to workers before they join
  // The router's. Null: plain text, and only on the loopback.
  std::shared_ptr<const ClusterCertificate> certificate{};
  // Called on gRPC threads for each peer that is refused.
  std::function<void(JoinFault)> on_refused{};
  // Called on a gRPC thread when the queue of events turns from empty to not empty; must only wake
  // the consumer (for example asio::post of a drain). Not called after Shutdown returned.
  std::function<void()> wake{};
  int max_workers = 256;
  int max_unread_reports = 64;     // per stream
  int max_unsent_messages = 4096;  // per stream
};

struct WorkerConnected {  // authenticated; the first report will carry WorkerAnnounce
  Incarnation worker = 0;
  std::string peer;  // its address, for logs
};
struct WorkerReported {
  Incarnation worker = 0;
  WorkerReport report;  // no events: the worker lives and has no news
};
struct WorkerLost {  // end of this stream: no more reports, and Send has no effect
  Incarnation worker = 0;
  absl::Status reason;
};
using ControlEvent = std::variant<WorkerConnected, WorkerReported, WorkerLost>;

class ControlServer {
 public:
  // Binds and listens. InvalidArgument: the address is not on the loopback, and there is no
  // certificate, or it is a Unix socket, and there is one. Unavailable: the address cannot be
  // bound. Errors name the address.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const ControlServerOptions& options);
  virtual ~ControlServer() = default;  // calls Shutdown if it was not called
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  virtual int port() const = 0;  // any thread; 0: a Unix socket
  // Reads the certificate's files again; the log says how it went. Streams stay as they are.
  virtual void ReloadCertificate() = 0;  // any thread
  // When the certificate in force expires; UnixEpoch: there is none.
  virtual absl::Time certificate_expiry() const = 0;  // any thread

  // All methods below: the front thread only. Appends all waiting events to *out, in order. False:
  // there were none.
  virtual bool TakeEvents(std::vector<ControlEvent>* out) = 0;
  // Sends to a worker whose WorkerConnected was taken and whose WorkerLost was not; else ignored
  // (the worker is lost, and its event says so). Messages given between two writes travel together.
  virtual void Send(Incarnation worker, std::vector<RouterMessage> messages) = 0;
  // Ends the worker's stream; the worker sees `reason`. Its WorkerLost comes as an event.
  virtual void Close(Incarnation worker, const absl::Status& reason) = 0;
  // Ends all streams and waits for all work of gRPC threads for this server; no events afterwards.
  virtual void Shutdown() = 0;

 protected:
  ControlServer() = default;
};

}  // namespace baton
