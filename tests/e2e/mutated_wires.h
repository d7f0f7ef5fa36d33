// Bytes of connections by TLS and by gRPC as a client sends them, some of them changed: bits,
// lengths, missing and repeated pieces.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/raw_client.h"

namespace baton {

// Changes up to three places of the bytes.
inline void ChangeBytes(std::mt19937_64* random, std::string* bytes) {
  for (uint64_t n = 1 + (*random)() % 3; n > 0; --n) {
    const size_t at = bytes->empty() ? 0 : (*random)() % bytes->size();
    const size_t size = std::min<size_t>(bytes->size() - at, (*random)() % 40);
    switch ((*random)() % 7) {
      case 0:
        bytes->erase(at, size);
        break;
      case 1:
        bytes->insert(at, bytes->substr(at, size));
        break;
      case 2:
        bytes->resize(at);
        break;
      case 3:
        bytes->insert(at, std::string((*random)() % 300, static_cast<char>((*random)())));
        break;
      case 4:  // the head of a record or a frame: its type and length
        if (bytes->size() > 5) (*bytes)[(*random)() % 5] = static_cast<char>((*random)());
        break;
      default:
        if (!bytes->empty()) (*bytes)[at] = static_cast<char>((*random)());
    }
  }
}

// A client of TLS whose records pass through the test: those of one flight are changed.
class RecordMutator {
 public:
  explicit RecordMutator(uint64_t seed)
      : random_(seed), context_(SSL_CTX_new(TLS_client_method())) {
    if (random_() % 2 == 0) SSL_CTX_set_max_proto_version(context_, TLS1_2_VERSION);
    ssl_ = SSL_new(context_);
    SSL_set_bio(ssl_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl_);
  }
  ~RecordMutator() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  RecordMutator(const RecordMutator&) = delete;
  RecordMutator& operator=(const RecordMutator&) = delete;

  // Shakes hands and sends the request, with one flight changed, after which nothing more is sent.
  void Talk(RawClient* client, std::string_view request) {
    const uint64_t changed = random_() % 4;  // 3: the records of the request, the others before
    for (uint64_t flight = 0; flight < 8; ++flight) {
      const bool is_done = SSL_do_handshake(ssl_) == 1;
      if (is_done) SSL_write(ssl_, request.data(), static_cast<int>(request.size()));
      std::string records = Out();
      if (flight == changed || is_done) {
        ChangeBytes(&random_, &records);
        client->Send(records);
        return;
      }
      if (!client->Send(records)) return;
      client->received.clear();
      // Whatever comes of the answer is one flight, or is gone on with in the next round.
      if (!client->ReadUntil(std::string_view("\x03\x03", 2), absl::Seconds(1))) return;
      BIO_write(SSL_get_rbio(ssl_), client->received.data(),
                static_cast<int>(client->received.size()));
    }
  }

 private:
  std::string Out() {
    std::string bytes(BIO_ctrl_pending(SSL_get_wbio(ssl_)), '\0');
    BIO_read(SSL_get_wbio(ssl_), bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
  }
  std::mt19937_64 random_;
  SSL_CTX* context_;
  SSL* ssl_;
};

// A connection by HTTP/2 with a call of gRPC: its frames, or the message in them, are changed.
class CallMutator {
 public:
  // GenerateRequest: prompt (2) "duck", max_tokens (5) 3. Other methods take it as they can.
  explicit CallMutator(uint64_t seed)
      : CallMutator(seed,
                    {"/baton.v1.Completion/Generate", "/baton.v1.Completion/Tokenize",
                     "/baton.v1.Completion/Detokenize", "/baton.v1.Completion/ListModels",
                     "/baton.v1.Completion/GetLoads"},
                    std::string("\x12\x04", 2) + "duck" + std::string("\x28\x03", 2)) {}
  // Calls one of the methods, by their paths, with the message.
  CallMutator(uint64_t seed, std::vector<std::string> methods, std::string message)
      : random_(seed), methods_(std::move(methods)), message_(std::move(message)) {}

  std::string Next() {
    std::string message = message_;
    const uint64_t where = random_() % 4;
    if (where == 0) ChangeBytes(&random_, &message);
    std::string framed = std::string(1, '\0') + Number(message.size(), 4) + message;
    if (where == 1) ChangeBytes(&random_, &framed);
    std::string fields;
    for (const auto& [name, value] : {std::pair<std::string, std::string>{":method", "POST"},
                                      {":scheme", "http"},
                                      {":path", methods_[random_() % methods_.size()]},
                                      {":authority", "localhost"},
                                      {"te", "trailers"},
                                      {"content-type", "application/grpc"},
                                      {"grpc-timeout", "2S"}})
      absl::StrAppend(&fields, std::string(1, '\0'), std::string(1, static_cast<char>(name.size())),
                      name, std::string(1, static_cast<char>(value.size())), value);
    if (where == 2) ChangeBytes(&random_, &fields);
    std::string frames = Frame(4, 0, 0, "") + Frame(1, 4, 1, fields) + Frame(0, 1, 1, framed);
    if (where == 3) ChangeBytes(&random_, &frames);
    return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames;
  }

 private:
  static std::string Number(uint64_t value, int n_bytes) {
    std::string bytes;
    for (int i = n_bytes - 1; i >= 0; --i) bytes += static_cast<char>(value >> (8 * i));
    return bytes;
  }
  static std::string Frame(int type, int flags, uint64_t stream, const std::string& payload) {
    return Number(payload.size(), 3) + static_cast<char>(type) + static_cast<char>(flags) +
           Number(stream, 4) + payload;
  }
  std::mt19937_64 random_;
  const std::vector<std::string> methods_;
  const std::string message_;
};

}  // namespace baton
