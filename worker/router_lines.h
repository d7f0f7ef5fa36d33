// The routers that are connected to a worker, and what the worker has to tell each: events go to
// the router whose request they are about, the load and the cached pages to all. What is for a
// router that has gone is dropped. Plain state of WorkerCore.
#pragma once

#include <functional>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "common/router_id.h"
#include "engine/kv/page_log.h"
#include "proto/control_client.h"
#include "proto/messages.h"

namespace baton {

class RouterLines {
 public:
  // log: of the cached pages; null: there are none to tell. It outlives this object.
  explicit RouterLines(PageLog* log) : log_(log) {}

  int size() const { return static_cast<int>(lines_.size()); }
  bool Has(RouterId router) const { return lines_.contains(router); }
  void Connect(const RouterConnected& connected);  // it knows nothing yet
  void Disconnect(RouterId router);
  void DisconnectAll();
  void TellPages(RouterId router);  // again, all of them

  void Report(WorkerEvent event);  // about a request
  // Reports the load where that is due: every second, and sooner where a count has changed.
  void ReportLoad(const WorkerLoad& load, absl::Time now);
  absl::Time LoadDue() const;  // infinite: nobody is connected
  // One message a turn to each, so that steps do not wait for the whole index to be told. True:
  // more is left.
  bool ReportPages();
  // Sends what waits, a report for each router.
  void Send(const std::function<void(uint64_t stream, WorkerReport)>& send);

 private:
  struct Line {
    uint64_t stream = 0;
    WorkerReport report;
    WorkerLoad reported_load;
    absl::Time load_reported = absl::InfinitePast();
    bool load_changed = false;

    absl::Time LoadDue() const;
  };
  absl::btree_map<RouterId, Line> lines_;
  PageLog* const log_;
};

}  // namespace baton
