// One relay whose ranks are PrefillSchedulers of their own, played by hand.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/prefill_worker/relay_bench.h"

namespace baton {

inline PrefillOptions With(int segment_keys, bool cut_through = true,
                           TransitionCounts* counts = nullptr) {
  PrefillOptions options;
  options.segment_keys = segment_keys;
  options.cut_through = cut_through;
  options.transitions = counts;
  options.open_ahead = 4;
  return options;
}

inline std::unique_ptr<Bench> MakeWorker(const PrefillOptions& options = With(4),
                                         int n_pages = 200) {
  return std::make_unique<Bench>(n_pages, 0, 4, options.transitions, true, std::vector<int>{},
                                 RopeDesc{}, options);
}

// One relay whose ranks are workers of their own.
struct Chain {
  Chain(std::vector<int> ends, Incarnation sink, const PrefillOptions& options = With(4),
        bool pushes = false) {
    std::vector<Bench*> ranks;
    for (size_t i = 0; i < ends.size(); ++i) {
      workers.push_back(MakeWorker(options));
      ranks.push_back(workers.back().get());
    }
    relay = std::make_unique<Relay>(7, std::move(ends), ranks, sink, pushes);
    relay->AdmitAll();
    for (int round = 0; round < relay->n_ranks(); ++round) Turn();
  }
  ~Chain() {
    for (auto& worker : workers) {
      worker->scheduler->Abandon();
      for (const HandoffArrived& kept : worker->kept) worker->pool->Give(kept.pages);
    }
  }
  // Pages and promises, without computing.
  void Turn() {
    for (auto it = workers.rbegin(); it != workers.rend(); ++it) {
      (*it)->builder.Clear();
      (*it)->scheduler->Contribute(1000, 0, (*it)->now, &(*it)->builder);
      (*it)->Collect();
    }
    relay->PromiseAll();
  }
  Bench& head() { return *workers.front(); }
  Bench& tail() { return *workers.back(); }

  std::vector<std::unique_ptr<Bench>> workers;
  std::unique_ptr<Relay> relay;
};

}  // namespace baton
