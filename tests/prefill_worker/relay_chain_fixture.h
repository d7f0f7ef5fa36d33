// One relay whose ranks are separate PrefillSchedulers; the test plays the transfer by hand.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/prefill_worker/relay_fixture.h"

namespace baton {

inline RankOptions With(int slice_keys, bool cut_through = true,
                        TransitionCounts* counts = nullptr) {
  return {.slice_keys = slice_keys, .whole_planes = !cut_through, .transitions = counts};
}

inline std::unique_ptr<SchedulerFixture> MakeWorker(RankOptions options = With(4),
                                                    int n_pages = 200,
                                                    int max_slice_tokens = 8192) {
  options.max_slice_tokens = max_slice_tokens;
  return std::make_unique<SchedulerFixture>(n_pages, 0, 4, options.transitions, true,
                                            std::vector<int>{}, RopeDesc{}, options);
}

// One relay whose ranks are separate workers.
struct RelayChainFixture {
  RelayChainFixture(std::vector<int> ends, Incarnation sink, const RankOptions& options = With(4),
                    bool pushes = false) {
    std::vector<SchedulerFixture*> ranks;
    for (size_t i = 0; i < ends.size(); ++i) {
      workers.push_back(MakeWorker(options));
      ranks.push_back(workers.back().get());
    }
    relay = std::make_unique<RelayFixture>(7, std::move(ends), ranks, sink, pushes);
    relay->AdmitAll();
    for (int round = 0; round < relay->n_ranks(); ++round) Turn();
  }
  ~RelayChainFixture() {
    for (auto& worker : workers) {
      worker->scheduler->prompts().Abandon();
      for (const HandoffArrived& kept : worker->kept) worker->pool->Give(kept.pages);
    }
  }
  // Handles pages and promises, without computing.
  void Turn() {
    for (auto it = workers.rbegin(); it != workers.rend(); ++it) {
      (*it)->builder.Clear();
      (*it)->scheduler->Contribute({.tokens = 1000}, 0, (*it)->now, &(*it)->builder);
      (*it)->Collect();
    }
    relay->PromiseAll();
  }
  SchedulerFixture& head() { return *workers.front(); }
  SchedulerFixture& tail() { return *workers.back(); }

  std::vector<std::unique_ptr<SchedulerFixture>> workers;
  std::unique_ptr<RelayFixture> relay;
};

}  // namespace baton
