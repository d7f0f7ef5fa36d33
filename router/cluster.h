// The cluster as the router sees it: who is here, what the workers were asked to do, what their
// caches hold or soon will, and what follows for the next attempt. Part of the Router, on its
// thread.
#pragma once

#include "router/broken_links.h"
#include "router/cached_prefixes.h"
#include "router/cached_tails.h"
#include "router/pool_sizing.h"
#include "router/predictor.h"
#include "router/prompts_under_way.h"
#include "router/router_options.h"

namespace baton {

struct Cluster {
  Cluster(const RouterOptions& options, const ClusterKey& key)
      : members(options.relay.sharing->table(), options.engine_patience, options.transitions),
        prefixes(key),
        predictor(options.relay, options.local, members, ledger, broken_links),
        sizing({.gap = options.sizing_gap}) {}
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
    tails.Leave(worker);
    broken_links.Leave(worker);
    return ledger.Leave(worker);
  }

  Membership members;
  Ledger ledger;
  CachedPrefixes prefixes;
  CachedTails tails;
  PromptsUnderWay under_way;
  BrokenLinks broken_links;
  Predictor predictor;
  PoolSizing sizing;
};

}  // namespace baton
