// Messages and chunk headers of the KV wire that somebody sends who may have the cluster key: of
// any kind and number, some with bytes changed. From a seed.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kvtransfer/protocol/crc32c.h"
#include "kvtransfer/protocol/wire.h"

namespace baton {

// Messages of both directions about these tickets, and every number of them at random.
class MessageMutator {
 public:
  MessageMutator(uint64_t seed, Incarnation sender) : random_(seed), sender_(sender) {}

  uint64_t Below(uint64_t n) { return random_() % n; }
  wire::Message Message(const std::vector<Ticket>& tickets, bool from_source) {
    const Ticket& ticket = tickets[Below(tickets.size())];
    const wire::Handoff about{ticket.id, ticket.epoch};
    const std::vector<wire::Message> of_source = {
        wire::Open{ticket, Below(2) == 0 ? wire::kNewHandoff : Number<uint32_t>()},
        wire::Done{about, Number<uint32_t>(), Number<uint64_t>()},
        wire::Commit{about, Number<int32_t>(), Number<int32_t>()}};
    const std::vector<wire::Message> of_sink = {
        wire::Promise{about, Number<uint64_t>(), Number<uint64_t>(), Number<uint32_t>(),
                      Number<uint32_t>(), Number<uint32_t>()},
        wire::NoRoom{about, Number<uint64_t>()}, wire::Ack{about, Number<uint32_t>()},
        wire::Nack{about, Number<uint32_t>(), wire::NackReason(Number<uint32_t>())},
        wire::Committed{about}};
    const std::vector<wire::Message> of_both = {wire::Cancel{about, Number<uint32_t>(), "x"},
                                                wire::Cancelled{about, Number<uint32_t>(), ""},
                                                wire::Ping{Number<uint64_t>()},
                                                wire::Pong{Number<uint64_t>()},
                                                wire::Hello{},
                                                wire::HelloAck{},
                                                wire::Challenge{}};
    const auto& own = from_source ? of_source : of_sink;
    const auto& other = from_source ? of_sink : of_source;
    const uint64_t pick = Below(20);
    const auto& from = pick < 14 ? own : pick < 19 ? of_both : other;
    return from[Below(from.size())];
  }
  // Changes some bytes, two times of three; most often the checksum is right again.
  std::string Change(std::string bytes) {
    if (Below(3) == 0) return bytes;
    for (uint64_t n = 1 + Below(3); n > 0 && !bytes.empty(); --n) {
      const size_t at = Below(bytes.size());
      const uint64_t how = Below(8);
      if (how == 0) bytes.erase(at, Below(9));
      if (how == 1) bytes.insert(at, Below(9), static_cast<char>(random_()));
      if (how > 1) bytes[at] = static_cast<char>(random_());
    }
    if (bytes.size() >= 12 && Below(8) != 0) {
      const uint32_t crc =
          ExtendCrc32c(Crc32c(bytes.data() + 6, 2), bytes.data() + 12, bytes.size() - 12);
      for (size_t i = 0; i < 4; ++i) bytes[8 + i] = static_cast<char>(crc >> (8 * i));
    }
    return bytes;
  }
  wire::ChunkHeader Header(const std::vector<Ticket>& tickets) {
    const Ticket& ticket = tickets[Below(tickets.size())];
    return {.handoff = {ticket.id, Below(8) == 0 ? Number<Epoch>() : ticket.epoch},
            .plane = Small(),
            .n_planes = Small(),
            .first_page = Small(),
            .n_pages = Small(),
            .length = Below(2) == 0 ? 400 : Number<uint32_t>() % 1'000'000,
            .sender = Below(30) == 0 ? 1 : sender_,
            .receiver = Below(30) == 0 ? 7u : ticket.sink,
            .chunk_seq = Small(),
            .payload_crc = Number<uint32_t>()};
  }

 private:
  // Any number: the smallest, the largest, and those near them are likely.
  template <typename T>
  T Number() {
    static constexpr std::array<uint64_t, 8> kEdges = {
        0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff, ~0ull >> 1, ~0ull};
    return static_cast<T>(Below(3) == 0 ? random_() : kEdges[Below(8)] + Below(3) - 1);
  }
  uint32_t Small() { return Below(6) == 0 ? Number<uint32_t>() : static_cast<uint32_t>(Below(4)); }

  std::mt19937_64 random_;
  const Incarnation sender_;
};

}  // namespace baton
