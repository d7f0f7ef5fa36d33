// The KV that arrives at one process of the relay benchmark for one prompt, and the KV that it
// passes on. The link thread reports arrivals, the engine thread awaits them; both share the
// object.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "bench/relay/rank_orders.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "prefill_worker/slice_run.h"

namespace baton {

inline TicketId TicketOf(const RankLink& link) { return {link.ticket, 1}; }

class RankInflows {
 public:
  // pages: the prompt's, by index. on_pages: pages [first, first + n) of plane `plane` have just
  // arrived; called on the link thread, before waiting threads are woken.
  RankInflows(const std::vector<RankLink>& in, const std::vector<RankLink>& out, int n_planes,
              std::function<void(int plane, int first, int n)> on_pages);

  void OnEvent(const TransferEvent& event);  // link thread

  // Engine thread. Number of planes that all inflows have brought, and of leading pages of the
  // next.
  InflowProgress progress();
  // Waits until all inflows have brought the plane. Error: one failed.
  absl::Status AwaitPlane(int plane);
  // Waits until every inflow with pages of [first, first + n) has brought these.
  absl::Status AwaitPages(int plane, int first, int n);
  absl::Status AwaitMore(const InflowProgress& there);
  // Waits until n cells of the only inflow are there, in the order in which they are sent.
  absl::Status AwaitCells(int64_t n);
  // Waits until nothing comes or goes any more. *arrived: monotonic seconds of the last inflow's
  // end.
  absl::Status AwaitEnd(double* arrived);
  double waited() const { return waited_; }  // seconds, so far

 private:
  struct Inflow {
    RankLink link;
    int n_planes = 0, n_pages = 0;  // arrived
    int Pages(int plane) const {
      return plane < n_planes ? link.n_pages : plane == n_planes ? n_pages : 0;
    }
  };
  void Advance(Inflow& inflow, const InflowArrived& arrived);
  InflowProgress ProgressLocked() const;
  absl::Status Wait(const std::function<bool()>& is_done);

  const int n_planes_;
  const std::function<void(int, int, int)> on_pages_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Inflow> inflows_;     // ascending first_page
  std::vector<uint64_t> outgoing_;  // tickets that have not ended
  absl::Status failure_;
  double arrived_ = 0;
  double waited_ = 0;
};

double MonotonicSeconds();

}  // namespace baton
