// A Link that only records the calls on it, for tests of the objects of a TransferCore: the test
// makes the events that a real link would report.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvtransfer/protocol/host_copier.h"
#include "kvtransfer/protocol/transfer_setup.h"
#include "tests/kvtransfer/test_pool.h"

#include <catch2/catch.hpp>

namespace baton {

class RecordingLink final : public Link {
 public:
  struct Announced {
    ConnectionId connection;
    OperationId operation;
    wire::ChunkHeader header;
    const std::byte* payload;
  };
  struct Accepted {
    AnnouncementId announcement;
    OperationId operation;
    std::byte* destination;
  };

  const std::string& address() const override { return address_; }
  void Register(std::byte*, int64_t) override {}
  ConnectionId Connect(const std::string& address) override {
    connected.push_back(address);
    return connected.size();
  }
  void Send(ConnectionId connection, std::string message) override {
    sent.emplace_back(connection, *wire::Decode(message));
  }
  void Announce(ConnectionId connection, OperationId operation,
                const wire::ChunkHeaderBytes& header, const std::byte* payload, uint64_t) override {
    const std::string_view bytes(reinterpret_cast<const char*>(header.data()), header.size());
    announced.push_back({connection, operation, *wire::DecodeChunkHeader(bytes), payload});
  }
  void Accept(AnnouncementId announcement, OperationId operation, std::byte* destination) override {
    accepted.push_back({announcement, operation, destination});
  }
  void Refuse(AnnouncementId announcement) override { refused.push_back(announcement); }
  void Close(ConnectionId connection) override { closed.push_back(connection); }
  bool Poll(std::vector<LinkEvent>*) override { return false; }
  bool Arm() override { return true; }
  int wake_fd() const override { return -1; }
  bool idle() const override { return true; }

  // Takes the oldest message sent, which must be of this type and over this connection.
  template <typename M>
  M Take(ConnectionId connection) {
    REQUIRE_FALSE(sent.empty());
    const auto [over, message] = sent.front();
    sent.erase(sent.begin());
    REQUIRE(over == connection);
    REQUIRE(std::holds_alternative<M>(message));
    return std::get<M>(message);
  }

  std::vector<std::string> connected;  // connection n is number n - 1
  std::vector<std::pair<ConnectionId, wire::Message>> sent;
  std::vector<Announced> announced;
  std::vector<Accepted> accepted;
  std::vector<AnnouncementId> refused;
  std::vector<ConnectionId> closed;

 private:
  const std::string address_ = "recording";
};

inline constexpr int64_t kRoomTimeoutUs = 60'000'000, kIdleTimeoutUs = 300'000'000;

// The setup of a worker: chunks of 100 bytes, windows of 250, peers given up after 4 s.
inline TransferSetup MakeSetup(Incarnation incarnation, const PoolView& pool, Link* link,
                               int32_t n_slots = 2, std::unique_ptr<CellCopier> copier = nullptr) {
  NodeOptions options = TestOptions(incarnation);
  options.chunk_bytes = 100;
  options.window_bytes = 250;
  options.slab_slots = n_slots;
  options.room_timeout_ms = kRoomTimeoutUs / 1000;
  options.idle_timeout_ms = kIdleTimeoutUs / 1000;
  return {.options = options,
          .facts = options.facts,
          .pool = pool,
          .link = link,
          .copier = copier != nullptr ? std::move(copier) : std::make_unique<HostCopier>(pool)};
}

// Returns the only effect or event, which must be of this type.
template <typename E, typename Variant>
E Only(const std::vector<Variant>& all) {
  REQUIRE(all.size() == 1);
  REQUIRE(std::holds_alternative<E>(all[0]));
  return std::get<E>(all[0]);
}

}  // namespace baton
