// Chunks that the sinks of this process have accepted. Each is a receive posted on the link, into
// the pool where its bytes lie in one piece there, else into a bounce slot; without a free slot it
// is held. A chunk that has landed is verified before a byte of a slot goes to the pool. Calls and
// the end of operations go in; calls on the Link and results come out. Owner: Sinks, link thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvtransfer/protocol/chunk_slab.h"
#include "kvtransfer/protocol/handoff_sink.h"
#include "kvtransfer/protocol/session.h"
#include "kvtransfer/protocol/transfer_setup.h"

namespace baton {

struct Receive {
  AnnouncementId announcement = 0;
  wire::ChunkHeader header;
  std::span<const int32_t> page_ids;   // (header.n_pages), valid until the receive is over
  std::shared_ptr<Session> session{};  // of its connection; null: it has no MAC
  // Set by Receives.
  std::byte* destination = nullptr;
  std::byte* slot = nullptr;  // nullptr: received into the pool
};

class Receives {
 public:
  explicit Receives(TransferSetup* setup);  // outlives this object

  // Posts the receive of an announced chunk, or holds it until PostHeld finds a slot.
  void Accept(Receive receive);
  // Header of the chunk of a posted receive.
  const wire::ChunkHeader& header(OperationId operation) const {
    return posted_.at(operation).header;
  }
  // Ends a posted receive and frees its slot. wanted: the sink still counts chunks, so this one is
  // verified and put into place. False: it is not.
  bool End(const ChunkLanded& landed, bool wanted);
  void PostHeld();
  // Refuses the held chunks of a handoff, which will not land, and returns their headers.
  std::vector<wire::ChunkHeader> RefuseHeld(const wire::Handoff& handoff);

  size_t size() const { return posted_.size() + held_.size(); }

 private:
  TransferSetup* const setup_;
  ChunkSlab slab_;
  absl::flat_hash_map<OperationId, Receive> posted_;
  std::deque<Receive> held_;
  OperationId next_operation_ = 1;
};

}  // namespace baton
