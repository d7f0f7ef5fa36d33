// A Link around another link: knows the open connections, can hold back a lost connection's event
// for a while, and lets a test change or add announcements.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvtransfer/protocol/link.h"

namespace baton {

class TappedLink final : public Link {
 public:
  struct Announced {
    ConnectionId connection;
    OperationId operation;
    wire::ChunkHeaderBytes header;
    const std::byte* payload;
    uint64_t length;
  };
  // `link` outlives the tap.
  explicit TappedLink(Link* link) : link_(link) {}
  explicit TappedLink(std::unique_ptr<Link> link) : owned_(std::move(link)), link_(owned_.get()) {}

  // Any thread. Ends every connection as a failing network does; the owner gets the events.
  void BreakConnections() { breaks_ = true; }
  // Any thread. Number of polls by the owner.
  uint64_t polls() const { return polls_; }

  // Called before each announcement; may change it.
  std::function<void(Announced*)> on_announce;
  // Called before each control message; may change it. An emptied message is not sent.
  std::function<void(std::string*)> on_send;
  // Called for each event before the owner gets it.
  std::function<void(LinkEvent*)> on_event;
  // Called for each event before on_event. True: the owner does not get the event.
  std::function<bool(const LinkEvent&)> drops_event;
  // Holds back events of lost connections while set.
  bool withholds_losses = false;
  std::string connects_to;  // replaces the address of Connect; empty: no change
  // Announcements made by the test; the owner does not get their end events.
  static constexpr OperationId kTestOperations = OperationId{1} << 62;

  const std::set<ConnectionId>& connections() const { return connections_; }
  Link* link() { return link_; }

  const std::string& address() const override { return link_->address(); }
  void Register(std::byte* base, int64_t bytes) override { link_->Register(base, bytes); }
  ConnectionId Connect(const std::string& address) override {
    const ConnectionId id = link_->Connect(connects_to.empty() ? address : connects_to);
    connections_.insert(id);
    return id;
  }
  void Send(ConnectionId connection, std::string message) override {
    if (on_send) on_send(&message);
    if (message.empty()) return;
    link_->Send(connection, std::move(message));
  }
  void Announce(ConnectionId connection, OperationId operation,
                const wire::ChunkHeaderBytes& header, const std::byte* payload,
                uint64_t length) override {
    Announced chunk{connection, operation, header, payload, length};
    if (on_announce) on_announce(&chunk);
    link_->Announce(connection, operation, chunk.header, chunk.payload, chunk.length);
  }
  void Accept(AnnouncementId announcement, OperationId operation, std::byte* destination) override {
    link_->Accept(announcement, operation, destination);
  }
  void Refuse(AnnouncementId announcement) override { link_->Refuse(announcement); }
  void Close(ConnectionId connection) override {
    connections_.erase(connection);
    link_->Close(connection);
  }
  bool Poll(std::vector<LinkEvent>* events) override {
    ++polls_;
    std::vector<LinkEvent> polled;
    link_->Poll(&polled);
    if (breaks_.exchange(false)) {
      for (const ConnectionId id : connections_) {
        link_->Close(id);
        polled.emplace_back(ConnectionLost{id, absl::UnavailableError("broken by the test")});
      }
    }
    const size_t before = events->size();
    if (!withholds_losses)
      for (LinkEvent& loss : std::exchange(losses_, {})) events->push_back(std::move(loss));
    for (LinkEvent& event : polled) {
      if (drops_event && drops_event(event)) continue;
      if (on_event) on_event(&event);
      if (const auto* accepted = std::get_if<ConnectionAccepted>(&event))
        connections_.insert(accepted->connection);
      if (const auto* sent = std::get_if<ChunkSent>(&event);
          sent != nullptr && sent->operation >= kTestOperations)
        continue;
      if (const auto* lost = std::get_if<ConnectionLost>(&event)) {
        connections_.erase(lost->connection);
        if (withholds_losses) {
          losses_.push_back(std::move(event));
          continue;
        }
      }
      events->push_back(std::move(event));
    }
    return events->size() > before;
  }
  bool Arm() override { return !breaks_ && link_->Arm(); }
  int wake_fd() const override { return link_->wake_fd(); }
  bool idle() const override { return link_->idle(); }

 private:
  const std::unique_ptr<Link> owned_;
  Link* const link_;
  std::atomic<uint64_t> polls_ = 0;
  std::atomic<bool> breaks_ = false;
  std::set<ConnectionId> connections_;
  std::vector<LinkEvent> losses_;
};

}  // namespace baton
