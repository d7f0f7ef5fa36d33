#include "common/ticket.h"

#include <catch2/catch.hpp>
#include <functional>

namespace baton {
namespace {

Ticket SampleTicket() {
  Ticket ticket;
  ticket.id = {0x0123456789abcdefull, 0xfedcba9876543210ull};
  ticket.epoch = 3;
  ticket.request_id = 42;
  ticket.source = 6;
  ticket.sink = 7;
  ticket.kv_pages = 5;
  ticket.promise_pages = 9;
  ticket.expires_us = 1'000'000;
  return ticket;
}

TEST_CASE("a signed ticket verifies under its key only") {
  ClusterKey key{}, other{};
  other[31] = 1;
  Ticket ticket = SampleTicket();
  CHECK_FALSE(VerifyTicket(key, ticket));
  SignTicket(key, ticket);
  CHECK(VerifyTicket(key, ticket));
  CHECK_FALSE(VerifyTicket(other, ticket));
}

TEST_CASE("the id of a key tells keys apart, and a ticket says which one signed it") {
  const ClusterKey key{1}, other{2};
  CHECK(KeyIdOf(key) == KeyIdOf(ClusterKey{1}));
  CHECK(KeyIdOf(key) != KeyIdOf(other));
  Ticket ticket = SampleTicket();
  SignTicket(key, ticket);
  CHECK(ticket.key_id == KeyIdOf(key));
}

TEST_CASE("changing any field breaks the signature") {
  const ClusterKey key{1, 2, 3};
  const std::function<void(Ticket&)> changes[] = {
      [](Ticket& t) { ++t.id.high; },       [](Ticket& t) { ++t.id.low; },
      [](Ticket& t) { ++t.epoch; },         [](Ticket& t) { ++t.request_id; },
      [](Ticket& t) { ++t.sink; },          [](Ticket& t) { ++t.kv_pages; },
      [](Ticket& t) { ++t.promise_pages; }, [](Ticket& t) { t.mac[31] ^= 1; },
      [](Ticket& t) { ++t.promise.high; },  [](Ticket& t) { ++t.promise.low; },
      [](Ticket& t) { ++t.first_page; },    [](Ticket& t) { ++t.n_pages; },
      [](Ticket& t) { ++t.source; },        [](Ticket& t) { ++t.held_pages; },
      [](Ticket& t) { ++t.expires_us; },    [](Ticket& t) { ++t.key_id; },
  };
  for (const auto& change : changes) {
    Ticket ticket = SampleTicket();
    SignTicket(key, ticket);
    change(ticket);
    CHECK_FALSE(VerifyTicket(key, ticket));
  }
}

TEST_CASE("the MAC is HMAC-SHA256: RFC 4231 test case 2 with its key padded by zeros") {
  // HMAC pads short keys with zeros, so the RFC's key "Jefe" equals a key with 28 zeros behind it.
  const ClusterKey key{'J', 'e', 'f', 'e'};
  const std::string text = "what do ya want for nothing?";
  const std::array<uint8_t, 32> mac = ClusterMac(key, text.data(), text.size());
  CHECK(mac[0] == 0x5b);
  CHECK(mac[1] == 0xdc);
  CHECK(mac[30] == 0x38);
  CHECK(mac[31] == 0x43);
}

}  // namespace
}  // namespace baton
