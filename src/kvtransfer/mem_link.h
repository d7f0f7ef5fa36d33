// A network inside one process: links that behave as link.h promises, with memcpy for a wire.
//
// Deterministic mode (single thread): nothing moves until Step, which delivers one randomly chosen
// deliverable thing; connections stay in order, everything else may be late. Faults injects damage.
// Threaded mode: everything is delivered at once; each link may be owned by another thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "kvtransfer/link.h"

namespace baton {

class MemLink;

class MemNetwork {
 public:
  struct Faults {                  // probabilities per opportunity
    double corrupt_payload = 0;    // one bit of a chunk flips on its way
    double duplicate_message = 0;  // a control message arrives twice in a row
    double cut_connection = 0;     // per Step
  };
  enum class Mode { kDeterministic, kThreaded };
  MemNetwork(Mode mode, uint64_t seed);
  ~MemNetwork();
  MemNetwork(const MemNetwork&) = delete;
  MemNetwork& operator=(const MemNetwork&) = delete;

  // The network outlives its links.
  std::unique_ptr<MemLink> MakeLink();

  // Deterministic mode. False: nothing was under way.
  bool Step();
  // Everything sent to or by this link stops, without a word to anyone (a stopped process).
  void Freeze(const MemLink* link);
  // Ends the connection for both ends, as a failing network does.
  void Cut(MemLink* link, ConnectionId connection);
  void set_faults(Faults faults) { faults_ = faults; }

 private:
  friend class MemLink;
  struct Offer {  // an announced chunk
    MemLink* sender;
    OperationId operation;
    const std::byte* payload;
    uint64_t length;
  };
  struct End {
    MemLink* link;
    ConnectionId id;
    bool operator==(const End&) const = default;
  };
  struct Wire {  // one connection
    End ends[2];
    bool open = true;
    std::deque<LinkEvent> to[2];                // in order, not yet delivered
    std::map<AnnouncementId, Offer> offers[2];  // to that end, neither accepted nor refused
  };
  struct Copy {  // an accepted chunk under way
    Wire* wire;
    Offer offer;
    MemLink* receiver;
    OperationId operation;
    std::byte* destination;
  };

  // All below with mutex_ held.
  Wire* FindWire(const MemLink* link, ConnectionId id, int* side);
  void Close(Wire* wire, int told_side, const absl::Status& status);
  void Deliver(Wire* wire, int side);
  void Finish(const Copy& copy, bool ok);
  void DeliverAllIfThreaded();
  bool Chance(double probability);
  bool frozen(const MemLink* link) const;

  const Mode mode_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  Faults faults_;
  uint64_t next_id_ = 1;
  std::map<std::string, MemLink*> links_;
  std::vector<std::unique_ptr<Wire>> wires_;
  std::vector<Copy> copies_;
  std::vector<const MemLink*> frozen_;
};

class MemLink final : public Link {
 public:
  ~MemLink() override;
  const std::string& address() const override { return address_; }
  void Register(std::byte*, int64_t) override {}
  ConnectionId Connect(const std::string& address) override;
  void Send(ConnectionId connection, std::string message) override;
  void Announce(ConnectionId connection, OperationId operation,
                const wire::ChunkHeaderBytes& header, const std::byte* payload,
                uint64_t length) override;
  void Accept(AnnouncementId announcement, OperationId operation, std::byte* destination) override;
  void Refuse(AnnouncementId announcement) override;
  void Close(ConnectionId connection) override;
  bool Poll(std::vector<LinkEvent>* events) override;
  bool Arm() override;
  int wake_fd() const override { return wake_fd_; }
  bool idle() const override;

 private:
  friend class MemNetwork;
  MemLink(MemNetwork* network, std::string address);
  void Put(LinkEvent event);  // mutex held

  MemNetwork* const network_;
  const std::string address_;
  const int wake_fd_;
  std::vector<LinkEvent> inbox_;
  int n_operations_ = 0;  // announced or accepted by this end, not reported yet
};

}  // namespace baton
