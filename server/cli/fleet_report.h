// Findings about a running cluster by what its router tells, for `baton doctor --cluster URL`:
// workers, links, fingerprints, refused peers, clocks. Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/status.h"
#include "server/cli/finding.h"

namespace baton {

// A model as an engine of this host would announce it; empty numerics: no model was given.
struct OwnModel {
  std::string name, fingerprint, numerics_id;  // fingerprint: 16 hex digits
};

// The pages of a router, as JSON and as Prometheus has them.
struct FleetPages {
  std::string cluster, live, metrics;  // metrics: empty where the key may not read them
  absl::Time date;  // of this host when `live` was made, as nearly as can be told
};

// url: http://HOST:PORT of a router. Unavailable, PermissionDenied: the pages cannot be read; the
// error says what to change.
absl::StatusOr<FleetPages> FetchFleetPages(const std::string& url, const std::string& key_file);
// A page that is none of a router's is a bad finding.
std::vector<Finding> InspectFleet(const FleetPages& pages, const OwnModel& own);

}  // namespace baton
