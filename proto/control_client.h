// The worker's end of the control wire (control.proto) to one router: dials it, proves membership
// of the cluster, announces the worker, and retries with growing pauses whenever the stream breaks.
// router_streams.h has one for each router.
//
// Threads: an own thread that dials and waits, and gRPC's threads. Events are delivered one at a
// time, in the order RouterConnected, RouterMessages*, RouterDisconnected, RouterConnected, ...
//
// An unreadable message about a request ends that request's part here, with a report to the router;
// the worker does not see the message, and the stream continues.
//
// After RouterDisconnected the router counts everything that ran on this worker as lost and
// dispatches it elsewhere: cancel all requests. A report names its stream and never reaches a later
// one, whose RouterConnected the engine may not have seen yet.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/router_id.h"
#include "common/status.h"
#include "common/ticket.h"
#include "proto/cluster_certificate.h"
#include "proto/messages.h"

namespace grpc {
class Channel;
}

namespace baton {

struct RouterConnected {  // accepted by a router of our cluster; the announce is under way
  RouterId router = 0;
  uint64_t stream = 0;  // names this stream for Send
};
struct RouterMessages {
  std::vector<RouterMessage> messages;  // in order; requests are the router's
  RouterId router = 0;
};
struct RouterDisconnected {
  absl::Status reason;  // given by the router at its close, or the fault
  RouterId router = 0;
};
using RouterEvent = std::variant<RouterConnected, RouterMessages, RouterDisconnected>;

struct ControlClientOptions {
  std::string router_address;  // host:port, or unix:PATH (unix_control.h)
  ClusterKey key{};
  // The worker's, for mutual TLS; its files are read again before each attempt. Null: plain text.
  std::shared_ptr<const ClusterCertificate> certificate{};
  WorkerAnnounce announce;  // first event of every stream
  // Tells what the engine does, for every report. Called on any thread while a lock is held:
  // returns at once. Null: none is told.
  std::function<EngineTurn()> engine_turn;
  // Called on gRPC's threads and on the dialling thread, never concurrently; must only post. False:
  // no room. The stream is then given up (the router dispatches its requests elsewhere) and dialled
  // anew; RouterDisconnected is offered again until it is accepted, before any other event.
  std::function<bool(RouterEvent)> on_event;
  // Asked before the worker joins a router. An error is the reason not to, which is told and asked
  // again: the router is reached by another address. Null: joins any.
  std::function<absl::Status(RouterId)> may_join{};
  std::function<void(RouterId)> left{};  // told after a stream that was joined has ended
  // Pause between attempts, doubled after each attempt that did not last longer than max_pause.
  absl::Duration min_pause = absl::Milliseconds(20);
  absl::Duration max_pause = absl::Seconds(1);
  // More waiting events, or more bytes than a message may have: the stream is given up.
  size_t max_unsent_events = 65536;
};

class ControlClient {
 public:
  // Starts dialling and returns at once; an absent router is not an error, it is retried.
  explicit ControlClient(ControlClientOptions options);
  // Ends the stream, joins the thread. on_event is not called afterwards, nor for this end.
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  // Any thread; never blocks. Events of reports given while a write is in flight travel together,
  // in order. False: the stream has ended, or was given up just now (RouterDisconnected reports
  // it); the report is dropped.
  bool Send(uint64_t stream, const WorkerReport& report);

  // Any thread. false: dials no more once the present stream has ended; true takes that back, until
  // IsOver.
  void SetWanted(bool wanted);
  bool IsOver();  // it has no stream, and never will have

 private:
  class Stream;

  void Dial();
  bool RunStream();               // runs until the stream ends; true: the router had accepted it
  bool RunToEnd(Stream* stream);  // false: the client is stopping
  bool Pause(absl::Duration pause);
  bool MayDial();
  void LogRefusal(const absl::Status& reason);
  void RereadCertificate();

  const ControlClientOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false, wanted_ = true, over_ = false;
  Stream* stream_ = nullptr;  // the current stream
  // Used by the dialler only.
  std::shared_ptr<const ClusterCertificate> certificate_;
  absl::Status last_refusal_, last_bad_files_;  // last logged ones
  // Kept until the next one is used: gRPC ends its threads with the last channel and waits for
  // them, for up to 100 ms.
  std::shared_ptr<grpc::Channel> last_channel_;
  std::thread dialler_;  // last member: starts when all others exist
};

}  // namespace baton
