#include "kvtransfer/protocol/session.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

constexpr size_t kNumberBytes = 8;

const uint8_t* BytesOf(std::string_view bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

}  // namespace

struct Session::Cipher {
  EVP_CIPHER_CTX* const context = EVP_CIPHER_CTX_new();
  ~Cipher() { EVP_CIPHER_CTX_free(context); }
};

Session::Session(const Key& key, bool is_source)
    : cipher_(std::make_unique<Cipher>()), is_source_(is_source) {
  BATON_CHECK(cipher_->context != nullptr && EVP_EncryptInit_ex(cipher_->context, EVP_aes_256_gcm(),
                                                                nullptr, key.data(), nullptr) == 1);
}

Session::~Session() = default;

Session::Mac Session::Compute(Kind kind, uint64_t number, std::string_view first,
                              std::string_view rest) {
  std::array<uint8_t, 12> iv{static_cast<uint8_t>(kind)};
  for (size_t i = 0; i < kNumberBytes; ++i) iv[4 + i] = static_cast<uint8_t>(number >> (8 * i));
  EVP_CIPHER_CTX* const context = cipher_->context;
  Mac mac;
  int n = 0;
  bool ok = EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, iv.data()) == 1;
  for (const std::string_view part : {first, rest})
    ok = ok &&
         EVP_EncryptUpdate(context, nullptr, &n, BytesOf(part), static_cast<int>(part.size())) == 1;
  ok = ok && EVP_EncryptFinal_ex(context, mac.data(), &n) == 1 &&
       EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, static_cast<int>(mac.size()),
                           mac.data()) == 1;
  BATON_CHECK(ok);
  return mac;
}

std::string Session::Seal(std::string message) {
  const uint64_t number = ++sent_;
  const Mac mac = Compute(is_source_ ? Kind::kOfSource : Kind::kOfSink, number, message, {});
  for (size_t i = 0; i < kNumberBytes; ++i) message.push_back(static_cast<char>(number >> (8 * i)));
  message.append(mac.begin(), mac.end());
  return message;
}

Session::Opened Session::Open(std::string_view* message) {
  if (message->size() < kSealBytes) return Opened::kForged;
  const std::string_view seal = message->substr(message->size() - kSealBytes);
  const std::string_view body = message->substr(0, message->size() - kSealBytes);
  uint64_t number = 0;
  for (size_t i = 0; i < kNumberBytes; ++i)
    number |= uint64_t{static_cast<uint8_t>(seal[i])} << (8 * i);
  const Mac mac = Compute(is_source_ ? Kind::kOfSink : Kind::kOfSource, number, body, {});
  if (CRYPTO_memcmp(mac.data(), seal.data() + kNumberBytes, mac.size()) != 0)
    return Opened::kForged;
  if (number <= opened_) return Opened::kRepeated;
  opened_ = number;
  *message = body;
  return Opened::kGood;
}

Session::Mac Session::OfChunk(wire::ChunkHeader header, const std::byte* payload) {
  header.mac = {};
  const wire::ChunkHeaderBytes bytes = wire::Encode(header);
  return Compute(Kind::kChunk, header.number,
                 {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                 {reinterpret_cast<const char*>(payload), header.length});
}

void Session::Sign(wire::ChunkHeader* header, const std::byte* payload) {
  header->number = ++chunks_;
  header->mac = OfChunk(*header, payload);
}

bool Session::Verify(const wire::ChunkHeader& header, const std::byte* payload) {
  const Mac mac = OfChunk(header, payload);
  return CRYPTO_memcmp(mac.data(), header.mac.data(), mac.size()) == 0;
}

}  // namespace baton
