// Refusals and stand-stills of a chaos run, and whether its clients and faults explain them.
#pragma once

#include <string>
#include <vector>

#include "tests/e2e/chaos/clients.h"
#include "tests/e2e/chaos/faults.h"
#include "tests/e2e/chaos/profile.h"

namespace baton {

// Returns a line for each refused request that no bound explains. The router says 503 while no
// worker is there, so all n_workers must have been away by faults at one moment of the request; it
// says 429 beyond max_waiting requests, which a profile with fewer clients never has.
std::vector<std::string> UnexplainedRefusals(const std::vector<ExchangeRecord>& exchanges,
                                             const std::vector<FaultRecord>& faults, int n_workers,
                                             int n_clients);

// Number of times that the router's log says of an engine that it stands still.
int StandStills(const std::string& log);

// Whether the profile stops nothing that could look like an engine that stands still.
bool StopsNothing(const Profile& profile);

}  // namespace baton
