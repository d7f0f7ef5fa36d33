// Chunks that the sinks of this process have accepted. Each is a receive posted on the link, into
// the pool where the link may write it there, else into a bounce slot; without a free slot it is
// held. A chunk that has landed is verified before a byte of a slot goes to the pool, and keeps its
// slot until all are there. Calls and the end of operations go in; calls on Link and CellCopier and
// results come out. Owner: Sinks, link thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
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
  Cells cells;  // of the header; page_ids are valid until the receive is over
  std::shared_ptr<Session> session{};  // of its connection; null: it has no MAC
  // Set by Receives.
  std::byte* destination = nullptr;
  std::byte* slot = nullptr;  // nullptr: received into the pool
  bool landed = false;        // verified, and being scattered
};

class Receives {
 public:
  explicit Receives(TransferSetup* setup);  // outlives this object

  // Posts the receive of an announced chunk, or holds it until PostHeld finds a slot.
  void Accept(Receive receive);
  // Header of the chunk of a posted receive, until it is over.
  const wire::ChunkHeader& header(OperationId operation) const {
    return posted_.at(operation).header;
  }
  enum class Landing { kInPlace, kRefused, kScattering };
  // The link no longer writes a posted receive. wanted: the sink still counts chunks, so this one
  // is verified and put into place. Unless it is kScattering, the receive is over and its slot is
  // free.
  Landing Land(const ChunkLanded& landed, bool wanted);
  // The bytes of a receive that was kScattering are in place: it is over and its slot is free.
  void End(const CellsScattered& scattered);
  void PostHeld();
  // True if the link may still write a chunk of the handoff.
  bool OnLink(const wire::Handoff& handoff) const;
  // Refuses the held chunks of a handoff, which will not land, and returns their headers.
  std::vector<wire::ChunkHeader> RefuseHeld(const wire::Handoff& handoff);

  size_t size() const { return posted_.size() + held_.size(); }

 private:
  bool Verify(const Receive& receive);  // counts what it refuses
  void Erase(OperationId operation);

  TransferSetup* const setup_;
  ChunkSlab slab_;
  absl::flat_hash_map<OperationId, Receive> posted_;
  std::deque<Receive> held_;
  OperationId next_operation_ = 1;
};

}  // namespace baton
