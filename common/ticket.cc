#include "common/ticket.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "common/check.h"

namespace baton {
namespace {

// Begins what is signed, so that no MAC of one kind passes as one of another.
constexpr std::string_view kTicketUse = "baton ticket v2", kKeyIdUse = "baton key id v1";

std::array<uint8_t, 32> TicketMac(const ClusterKey& key, const Ticket& ticket) {
  // Fixed little-endian layout: every field once, in order of declaration.
  uint8_t bytes[kTicketUse.size() + 8 + 8 + 4 + 8 + 8 + 8 + 8 + 8 + 4 + 4 + 4 + 4 + 4 + 8 + 4];
  uint8_t* at = std::copy(kTicketUse.begin(), kTicketUse.end(), bytes);
  const auto put = [&at](uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; ++i) *at++ = static_cast<uint8_t>(value >> (8 * i));
  };
  put(ticket.id.high, 8);
  put(ticket.id.low, 8);
  put(ticket.epoch, 4);
  put(ticket.request_id, 8);
  put(ticket.source, 8);
  put(ticket.sink, 8);
  put(ticket.promise.high, 8);
  put(ticket.promise.low, 8);
  for (const int32_t n : {ticket.kv_pages, ticket.promise_pages, ticket.first_page, ticket.n_pages,
                          ticket.held_pages})
    put(static_cast<uint32_t>(n), 4);
  put(static_cast<uint64_t>(ticket.expires_us), 8);
  put(ticket.key_id, 4);
  return ClusterMac(key, bytes, sizeof(bytes));
}

}  // namespace

std::array<uint8_t, 32> ClusterMac(const ClusterKey& key, const void* bytes, size_t n_bytes) {
  std::array<uint8_t, 32> mac{};
  unsigned length = 0;
  BATON_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                   static_cast<const unsigned char*>(bytes), n_bytes, mac.data(),
                   &length) != nullptr);
  BATON_CHECK(length == mac.size());
  return mac;
}

uint32_t KeyIdOf(const ClusterKey& key) {
  const std::array<uint8_t, 32> mac = ClusterMac(key, kKeyIdUse.data(), kKeyIdUse.size());
  uint32_t id;
  std::memcpy(&id, mac.data(), sizeof(id));
  return id;
}

void SignTicket(const ClusterKey& key, Ticket& ticket) {
  ticket.key_id = KeyIdOf(key);
  ticket.mac = TicketMac(key, ticket);
}

bool VerifyTicket(const ClusterKey& key, const Ticket& ticket) {
  const std::array<uint8_t, 32> mac = TicketMac(key, ticket);
  return CRYPTO_memcmp(mac.data(), ticket.mac.data(), mac.size()) == 0;
}

}  // namespace baton
