// A network inside one process: links that behave as link.h promises, with memcpy for a wire.
//
// Deterministic mode (single thread): nothing moves by itself. Step delivers one randomly chosen
// deliverable thing; or, on virtual time, set_delay gives every message and chunk a time of arrival
// and Deliver hands over the earliest. Connections stay in order, everything else may be late.
// Threaded mode: everything is delivered at once; each link may be owned by another thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvtransfer/protocol/link.h"

namespace baton {

class MemLink;

class MemNetwork {
 public:
  struct Faults {                  // probabilities per opportunity
    double corrupt_payload = 0;    // one bit of a chunk flips on its way
    double duplicate_message = 0;  // a control message arrives twice in a row
    double cut_connection = 0;     // per delivery, of a message or a chunk
    double late_landing = 0;       // a receive outlives its connection: it reports, and may write,
                                   // some time after the loss
  };
  // Called around every write into memory: when a receive is posted, and just before bytes land
  // (n_bytes of them: a broken connection leaves any part behind).
  struct Watch {
    std::function<void(const MemLink*receiver, OperationId, const std::byte*at, uint64_t n_bytes)>
        posted, landing;
    // Called with each control message that is sent; must not call a link.
    std::function<void(const MemLink* to, const std::string& message)> sent{};
  };
  enum class Mode { kDeterministic, kThreaded };
  MemNetwork(Mode mode, uint64_t seed);
  ~MemNetwork();
  MemNetwork(const MemNetwork&) = delete;
  MemNetwork& operator=(const MemNetwork&) = delete;

  // The network outlives its links. wake, deterministic mode: called when an event comes to a link
  // that had none; it must not call the link. address: the address of a link that is gone, as a
  // restarted process takes its port again; empty: a new one.
  std::unique_ptr<MemLink> MakeLink(std::function<void()> wake = nullptr, std::string address = "");

  // --- deterministic mode
  // Delivers one thing under way, whatever its time. False: nothing was under way.
  bool Step();
  // Returns the microseconds that a message or chunk takes; one end may be nullptr, a link that is
  // gone.
  using Delay = std::function<int64_t(const MemLink* from, const MemLink* to)>;
  void set_delay(Delay delay) { delay_ = std::move(delay); }
  static constexpr int64_t kNever = INT64_MAX;
  int64_t NextDueUs() const;  // time of the next delivery by Deliver
  // Delivers one thing that is due. Later sends count from now_us. False: nothing was due.
  bool Deliver(int64_t now_us);
  // Stops everything sent to or by this link, without an event (a stopped process).
  void Freeze(const MemLink* link);
  void Thaw(const MemLink* link);
  // Stops everything from one link to the other, without an event (a broken route).
  void Block(const MemLink* from, const MemLink* to);
  void UnblockAll() { blocked_.clear(); }
  // Ends the connection for both ends at once, as a failing network does.
  void Cut(MemLink* link, ConnectionId connection);
  bool CutAny();  // cuts a random connection; false: there is none
  void set_faults(Faults faults) { faults_ = faults; }
  void set_watch(Watch watch) { watch_ = std::move(watch); }

 private:
  friend class MemLink;
  struct Offer {  // an announced chunk
    MemLink* sender;
    OperationId operation;
    const std::byte* payload;
    uint64_t length;
  };
  struct End {
    MemLink* link;  // nullptr: the link is gone
    ConnectionId id;
    bool open = true;
  };
  struct Parcel {
    int64_t due_us;
    LinkEvent event;
  };
  struct Wire {  // one connection
    End ends[2];
    std::deque<Parcel> to[2];                   // in order, not yet delivered
    std::map<AnnouncementId, Offer> offers[2];  // per receiving end; neither accepted nor refused
  };
  struct Copy {  // an accepted chunk under way
    Wire* wire;
    int receiving_side;
    int64_t due_us;
    Offer offer;        // sender nullptr: its operation has already ended with an event
    MemLink* receiver;  // nullptr: as for the sender
    OperationId operation;
    std::byte* destination;
    bool whole = false;  // all bytes had landed when the sender's end broke
  };

  struct Straggler {  // a receive whose connection is over
    int64_t due_us;
    MemLink* receiver;
    OperationId operation;
    std::byte* destination;
    uint64_t length;               // bytes of the chunk
    bool whole;                    // all of the chunk will have landed
    std::vector<std::byte> bytes;  // bytes that still land
  };

  // The functions below need mutex_ held.
  Wire* FindWire(const MemLink* link, ConnectionId id, int* side);
  Wire* FindOffer(const MemLink* link, AnnouncementId id, int* side);
  void Send(Wire* wire, int to_side, LinkEvent event);
  int64_t DueUs(const Wire& wire, int to_side);
  bool CanDeliver(const Wire& wire, int side) const;
  bool CanFinish(const Copy& copy) const;
  bool Passes(const MemLink* from, const MemLink* to) const;
  void DeliverFront(Wire* wire, int side);
  void FinishAt(size_t copy_index);
  // Ends one side and its operations; the other side gets no event.
  void EndSide(Wire* wire, int side);
  uint64_t BytesLeft(const Copy& copy);
  void BreakCopy(Copy* copy);
  void AddStraggler(const Copy& copy);
  void FinishStraggler(size_t index);
  bool Shares(const MemLink* link, const std::byte* at, uint64_t n_bytes) const;
  // Closes one side; the other side gets an event.
  void CloseSide(Wire* wire, int side, const absl::Status& status);
  void CloseBoth(Wire* wire, const absl::Status& status);
  void DeliverAllIfThreaded();
  bool Chance(double probability);

  const Mode mode_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  Faults faults_;
  Watch watch_;
  Delay delay_;
  int64_t now_us_ = 0;
  uint64_t next_id_ = 1;
  std::map<std::string, MemLink*> links_;
  std::vector<std::unique_ptr<Wire>> wires_;
  std::vector<Copy> copies_;
  std::vector<Straggler> stragglers_;
  std::vector<const MemLink*> frozen_;
  std::set<std::pair<const MemLink*, const MemLink*>> blocked_;
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
  int wake_fd() const override { return wake_fd_; }  // -1 in deterministic mode
  bool idle() const override;

 private:
  friend class MemNetwork;
  MemLink(MemNetwork* network, std::string address, std::function<void()> wake, int wake_fd);
  void Put(LinkEvent event);  // mutex_ held
  void Report(LinkEvent end_of_operation) {
    --n_operations_;
    Put(std::move(end_of_operation));
  }

  MemNetwork* const network_;
  const std::string address_;
  const std::function<void()> wake_;
  const int wake_fd_;
  std::vector<LinkEvent> inbox_;
  int n_operations_ = 0;  // announced or accepted by this end, without an event yet
};

}  // namespace baton
