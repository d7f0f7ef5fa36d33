// A Link that makes another one slower, for experiments: every chunk takes its time at this end's
// port, out and in. PacedLink delays, and copies no bytes: the link that serves requests runs
// below, without a change. Chunks of all connections share a port, one after another, so fan-out
// and fan-in contend as they do at a network card. Messages are small and wait only for what was
// sent before them on their connection. Owned by one thread, as every Link; SetPace: any thread.
//
// Out: an announcement goes when the port has sent it. In: a receive is posted when the port has
// taken it. Both are the first in, first out of their port. Where the pace has noise, a port is
// slower at times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "kvtransfer/protocol/link.h"
#include "lab/link_pace.h"

namespace baton {

class PacedLink final : public Link {
 public:
  // Takes the link before its first use. now_us: monotonic; empty: the machine's steady clock.
  // CHECKs that the system gives descriptors. With a clock that does not run by itself (simulation)
  // wake_fd is not to be slept on: next_due_us says when Poll has more to do.
  PacedLink(std::unique_ptr<Link> link, const LinkPace& pace,
            std::function<int64_t()> now_us = nullptr);
  ~PacedLink() override;

  // For what is sent and accepted from now on; what is on its way keeps its time. Any thread.
  void SetPace(const LinkPace& pace);
  static constexpr int64_t kNever = INT64_MAX;
  int64_t next_due_us() const;  // a time of now_us; kNever: nothing is held

  const std::string& address() const override { return link_->address(); }
  void Register(std::byte* base, int64_t bytes) override { link_->Register(base, bytes); }
  ConnectionId Connect(const std::string& address) override { return link_->Connect(address); }
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
  struct Chunk {
    OperationId operation;
    wire::ChunkHeaderBytes header;
    const std::byte* payload;
    uint64_t length;
  };
  struct Outgoing {  // in order of due_us per connection
    int64_t due_us;
    std::variant<std::string, Chunk> what;
  };
  struct Offer {  // announced to this end, neither accepted nor refused
    ConnectionId connection;
    uint64_t length;
  };
  struct Receive {  // accepted, the port has not taken it yet
    int64_t due_us;
    ConnectionId connection;
    AnnouncementId announcement;
    OperationId operation;
    std::byte* destination;
  };
  LinkPace pace() const;
  // Returns the time at which a port that takes chunks one after another is through with one more.
  int64_t Pass(const LinkPace& pace, uint64_t length, int64_t* free_us) const;
  int64_t PassIn(uint64_t length);
  void Hold(ConnectionId connection, int64_t due_us, std::variant<std::string, Chunk> what);
  bool SendDue(int64_t now_us);
  void Dispatch(ConnectionId connection, std::variant<std::string, Chunk> what);
  void Forget(ConnectionId connection);
  void Record(const LinkEvent& event);

  const std::unique_ptr<Link> link_;
  mutable std::mutex pace_mutex_;
  LinkPace pace_;
  const std::function<int64_t()> now_us_;
  int timer_fd_ = -1, wake_fd_ = -1;
  int64_t out_free_us_ = 0, in_free_us_ = 0;
  int64_t taken_in_ = 0;                                   // bytes
  std::map<ConnectionId, std::deque<Outgoing>> outgoing_;  // none is empty
  std::deque<Receive> receives_;                           // in order of due_us
  std::map<AnnouncementId, Offer> offers_;
  std::vector<LinkEvent> ended_;  // ends of what was held when its connection ended
};

// Returns a maker of the links of `make_link`, each held to the pace; `make_link` itself if the
// pace is not set.
LinkMaker Paced(LinkMaker make_link, const LinkPace& pace);

}  // namespace baton
