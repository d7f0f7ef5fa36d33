// The worker's end of the wire to its router: dials, proves membership of the cluster, announces
// the worker, and keeps doing so with growing pauses whenever the stream breaks.
//
// Threads: one of its own that dials and waits, and gRPC's. Events are delivered one at a time, in
// the order RouterConnected, RouterMessages*, RouterDisconnected, RouterConnected, ...
//
// A message about a request that cannot be read ends that request's part here, with a report to the
// router; the worker does not hear of it, and the stream goes on.
//
// After RouterDisconnected the router counts everything this worker ran as lost and aims it
// elsewhere: cancel all requests. Reports sent before it never reach a later stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/status.h"
#include "common/ticket.h"
#include "proto/messages.h"

namespace baton {

struct RouterConnected {};  // accepted by a router of our cluster; the announce is on its way
struct RouterMessages {
  std::vector<RouterMessage> messages;  // in order
};
struct RouterDisconnected {
  absl::Status reason;  // what the router said when it closed the stream, or what broke
};
using RouterEvent = std::variant<RouterConnected, RouterMessages, RouterDisconnected>;

struct ControlClientOptions {
  std::string router_address;  // host:port
  ClusterKey key{};
  WorkerAnnounce announce;  // first event of every stream
  // Called on gRPC's threads and on the dialling thread, never by two at once; must only post.
  // False: no room. Then the stream is given up (the router aims its requests elsewhere) and
  // dialled anew; RouterDisconnected is offered again until it is taken, before anything else.
  std::function<bool(RouterEvent)> on_event;
  // Between attempts, doubled after each that did not last longer than max_pause.
  absl::Duration min_pause = absl::Milliseconds(20);
  absl::Duration max_pause = absl::Seconds(1);
  size_t max_unsent_events = 65536;  // more than that waiting: the stream is given up
};

class ControlClient {
 public:
  // Starts dialling and returns at once; an absent router is not an error, it is retried.
  explicit ControlClient(ControlClientOptions options);
  // Ends the stream, joins the thread. on_event is not called afterwards, nor for this ending.
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  // Any thread; never blocks. Events of reports given while a write is in flight travel together,
  // in order. False: not connected, or given up just now (RouterDisconnected says so); the report
  // is dropped.
  bool Send(WorkerReport report);

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace baton
