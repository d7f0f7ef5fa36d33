// One line about each thing that crosses between router, engine and link threads, for traces.
#pragma once

#include <string>

#include "kvtransfer/protocol/transfer_events.h"
#include "proto/control_client.h"
#include "proto/messages.h"

namespace baton::sim {

std::string Tell(const RouterEvent& event);
std::string Tell(const WorkerReport& report);
std::string Tell(const TransferCommand& command);
std::string Tell(const TransferEvent& event);

}  // namespace baton::sim
