// The cluster as the router sees it: who is here, what the workers were asked to do, what their
// caches are expected to hold, and what follows for the next attempt. Part of the Router, on its
// thread.
#pragma once

#include <vector>

#include "router/cached_prefixes.h"
#include "router/ledger.h"
#include "router/membership.h"
#include "router/predictor.h"
#include "router/router_options.h"

namespace baton {

struct Cluster {
  explicit Cluster(const RouterOptions& options)
      : members(options.relay.sharing->table(), options.transitions),
        predictor(options.relay, members, ledger) {}
  Cluster(const Cluster&) = delete;  // the predictor looks at the others

  // Errors: those of Membership::Join.
  absl::Status Join(const WorkerAnnounce& worker, absl::Time now) {
    RETURN_IF_ERROR(members.Join(worker, now));
    prefixes.Join(worker);
    return absl::OkStatus();
  }
  // Forgets the worker; returns the requests that had a part there, in no order.
  std::vector<RequestId> Leave(Incarnation worker) {
    members.Leave(worker);
    prefixes.Leave(worker);
    predictor.Leave(worker);
    return ledger.Leave(worker);
  }
  void OnLoad(Incarnation worker, const WorkerLoad& load, absl::Time now) {
    members.OnLoad(worker, load, now);
    if (load.prefill_fit.n_seen > 0) predictor.OnFit(members.At(worker).about, load.prefill_fit);
  }

  Membership members;
  Ledger ledger;
  CachedPrefixes prefixes;
  Predictor predictor;
};

}  // namespace baton
