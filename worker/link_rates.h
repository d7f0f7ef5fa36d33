// Adds the rates of a worker's links to every load report that the worker sends to the router. Pure
// function; the worker calls it on the engine thread.
#pragma once

#include <variant>
#include <vector>

#include "kvtransfer/protocol/transfer_events.h"
#include "proto/control_codec.h"
#include "proto/messages.h"

namespace baton {

// Leaves out links of unknown rate, and those beyond ControlLimits::kLinks.
inline void AddLinks(const std::vector<LinkReport>& links, WorkerReport* report) {
  for (WorkerEvent& event : report->events) {
    auto* load = std::get_if<WorkerLoad>(&event);
    if (load == nullptr) continue;
    for (const LinkReport& link : links)
      if (link.bytes_per_second >= 1 && load->links.size() < ControlLimits::kLinks)
        load->links.push_back(
            {.peer = link.peer,
             .bytes_per_second = link.bytes_per_second,
             .round_trip_us = link.round_trip_us});
  }
}

}  // namespace baton
