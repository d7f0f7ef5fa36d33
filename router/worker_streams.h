// The router's end of its workers' control streams: which messages go to which worker, which
// streams the Router wants ended, and which of its effects are for clients. The shell moves bytes
// and the end of streams; the simulation drives the same object. Front thread.
#pragma once

#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/status.h"
#include "proto/messages.h"
#include "router/router.h"

namespace baton {

class WorkerStreams {
 public:
  // The router must outlive this object; all its effects are taken here.
  explicit WorkerStreams(Router* router) : router_(router) {}

  // Gives a report to the Router, except of a stream that the Router wants ended. Error: the Router
  // refused the report, and the stream is to be ended.
  absl::Status OnReport(Incarnation worker, const WorkerReport& report, absl::Time now);
  // True if reports of the worker's stream are ignored, until the stream has ended.
  bool IsClosed(Incarnation worker) const { return closed_.contains(worker); }
  // The stream has ended: messages meant for it must not reach the worker's next one.
  void OnLost(Incarnation worker, absl::Time now);

  // Takes the Router's effects. messages(), TakeCloses() and emissions() are complete afterwards.
  void Collect();
  // By worker, in order, to be sent in one piece; then cleared.
  using Messages = absl::btree_map<Incarnation, std::vector<RouterMessage>>;
  const Messages& messages() const { return messages_; }
  Messages TakeMessages() { return std::exchange(messages_, {}); }
  // Streams to end, and why. To be carried out only after all events that have arrived: else the
  // end could hit the worker's next stream.
  using Closes = absl::btree_map<Incarnation, absl::Status>;
  Closes TakeCloses() { return std::exchange(closes_, {}); }
  // EmitToken, EmitEnd and EmitReleased, in order.
  std::vector<RouterEffect>& emissions() { return emissions_; }

 private:
  void Close(Incarnation worker, absl::Status reason);

  Router* const router_;
  Messages messages_;
  Closes closes_;
  absl::btree_set<Incarnation> closed_;
  std::vector<RouterEffect> emissions_;
};

}  // namespace baton
