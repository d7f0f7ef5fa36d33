// The streams between workers and one router as gRPC and ControlClient/ControlServer behave: in
// order within a stream and nothing else; a stream that breaks may lose the end of what is under
// way, and each end hears of it by itself; a worker dials again with the same incarnation; the
// router retires an older stream when a newer one comes. Keepalive ends a stream whose other end is
// silent. Messages about cached pages may be lost, which gRPC does not do: routers bear it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "proto/control_client.h"
#include "proto/messages.h"
#include "tests/sim/agenda.h"
#include "tests/sim/node.h"
#include "tests/sim/swarm.h"

namespace baton::sim {

// An event of a stream for the router's front thread, as ControlServer queues it.
struct StreamOpened {
  uint64_t stream;
  Incarnation worker;
};
struct StreamReported {
  uint64_t stream;
  Incarnation worker;
  WorkerReport report;
};
struct StreamLost {
  uint64_t stream;
  Incarnation worker;
};
using FrontEvent = std::variant<StreamOpened, StreamReported, StreamLost>;

class ControlWire {
 public:
  // index: the router's among those of the run.
  ControlWire(int index, const Swarm& swarm, Agenda* agenda, SimRandom* random,
              std::vector<std::unique_ptr<Node>>* nodes, std::function<void()> wake_front);

  // Subjects of the agenda for streams of the router: the worker, and so many for each router.
  static constexpr int kWorkers = 1024;
  void SetRouter(RouterId router) { router_ = router; }  // of its present life

  // --- the worker's end
  void StartDialling(int node);
  void Dial(int node, uint64_t stamp);
  // Dropped unless the worker's stream is this router's.
  // stream: as RouterConnected named it.
  void Report(int node, uint64_t stream, WorkerReport report, int64_t at_us);
  void Sign(int node, int64_t at_us);  // an empty report
  void OnKilled(int node);
  void OnPaused(int node);   // no messages from now on
  void OnResumed(int node);  // delivers the waiting messages
  void DeliverDown(uint64_t stream);

  // --- the router's end
  void DeliverUp(uint64_t stream);
  bool TakeFrontEvents(std::deque<FrontEvent>* out);  // all that have come
  void Send(Incarnation worker, std::vector<RouterMessage> messages);
  void Close(Incarnation worker);  // called by the router
  void OnRouterKilled();           // ends every stream; dials fail until the router starts again
  void OnRouterStarted() { router_up_ = true; }

  // --- faults
  bool BreakAny();  // false: no stream is open
  void Break(int node);
  void SetBlocked(int node, bool up, bool down);
  void Clog(int node, int64_t until_us) { clogged_until_us_[node] = until_us; }
  void KeepaliveCheck(uint64_t stream, int node);
  // The worker's last message about its pages was lost, and so no router can know of it.
  bool LostPages(int node) const { return lost_pages_[node]; }
  uint64_t n_lost_pages() const { return n_lost_pages_; }

  bool Connected(int node) const;
  size_t LongestQueue() const;

 private:
  struct Lost {};
  struct Up {
    int64_t sent_us, due_us;
    std::variant<WorkerReport, Lost> what;
  };
  struct Down {
    int64_t due_us;
    RouterEvent what;
  };
  struct Stream {
    uint64_t id;
    int node;
    Incarnation worker;
    RouterId router = 0;  // that accepted it
    bool worker_open = true, router_open = false;
    bool accepted = false;  // the worker has been told
    bool seen = false;      // the router's end has been told
    std::deque<Up> up;
    std::deque<Down> down;
    uint64_t name() const { return uint64_t{router} << 32 | id; }  // unlike other routers'
    bool over() const { return !worker_open && !router_open && (seen || up.empty()); }
  };
  struct Dialler {
    uint64_t stamp = 0;
    int64_t pause_us = 20'000, opened_us = 0;
    uint64_t stream = 0;  // 0: none
  };

  int Subject(int node) const { return index_ * kWorkers + node; }
  int64_t Delay(int node);
  void Write(Stream* stream, WorkerReport report, int64_t at_us);
  Stream* Find(uint64_t id);
  void PushUp(Stream* stream, std::variant<WorkerReport, Lost> what, int64_t sent_us);
  void PushDown(Stream* stream, RouterEvent what);
  void EndAtRouter(Stream* stream);
  void EndAtWorker(Stream* stream);
  void LoseUp(Stream* stream);    // the router's end gets an event later
  void LoseDown(Stream* stream);  // the worker's end gets an event later
  void Front(FrontEvent event);
  void LosePages(int node, WorkerReport* report);
  void Prune();

  const int index_;
  const Swarm& swarm_;
  Agenda* const agenda_;
  SimRandom* const random_;
  std::vector<std::unique_ptr<Node>>* const nodes_;
  const std::function<void()> wake_front_;

  bool router_up_ = true;
  RouterId router_ = 0;
  uint64_t next_ = 1;
  std::map<uint64_t, Stream> streams_;
  std::vector<Dialler> diallers_;
  std::vector<bool> up_blocked_, down_blocked_;
  std::vector<int64_t> silent_since_us_, clogged_until_us_;  // index: node; silent: INT64_MAX = not
  std::map<Incarnation, uint64_t> newest_, taken_;
  SimRandom page_losses_;         // apart, so that they change nothing else of a run
  std::vector<bool> lost_pages_;  // index: node
  uint64_t n_lost_pages_ = 0;
  std::deque<FrontEvent> front_;
};

}  // namespace baton::sim
