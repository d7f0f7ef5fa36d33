// The KV that arrives at one process of the relay benchmark for one prompt, and what goes on to
// others: told by the link thread, awaited by the engine thread. The object is shared by both.
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
  // pages: the prompt's, by place. on_pages: of plane `plane` the pages [first, first + n) have
  // just arrived; called on the link thread, before anybody who waits is told.
  RankInflows(const std::vector<RankLink>& in, const std::vector<RankLink>& out, int n_planes,
              std::function<void(int plane, int first, int n)> on_pages);

  void OnEvent(const TransferEvent& event);  // link thread

  // Engine thread. Planes of which all inflows are there, and leading pages of the next one.
  InflowProgress progress();
  // All inflows have the plane. An error if one failed.
  absl::Status AwaitPlane(int plane);
  // Those of them with pages of [first, first + n) have.
  absl::Status AwaitPages(int plane, int first, int n);
  absl::Status AwaitMore(const InflowProgress& there);
  // So many cells of the only inflow are there, in the order in which they are sent.
  absl::Status AwaitCells(int64_t n);
  // Nothing comes or goes any more; seconds (monotonic) of the last inflow's end in *arrived.
  absl::Status AwaitEnd(double* arrived);
  double waited() const { return waited_; }  // seconds, so far

 private:
  struct Inflow {
    RankLink link;
    int n_planes = 0, n_pages = 0;  // there
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
