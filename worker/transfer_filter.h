// Stands between a worker's engine and its transfer room, and changes what the room is told
// (WorkerStart::filter).
#pragma once

#include <functional>

#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

class TransferFilter {
 public:
  using Post = std::function<void(TransferCommand)>;
  virtual ~TransferFilter() = default;
  // Posts what the transfer room gets now: the command, others, or none. Engine thread.
  virtual void OnCommand(TransferCommand command, const Post& post) = 0;
  // Sees each event of the transfer room before the engine does. Link thread.
  virtual void OnEvent(const TransferEvent& event) = 0;
};

}  // namespace baton
