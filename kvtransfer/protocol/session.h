// The MACs of one connection: of its control messages after HELLO, and of its chunks, under a key
// that only the two ends of this connection have. AES-GMAC by OpenSSL: a pass over the bytes at
// several GB/s. What is signed goes with a number that no two of a kind have, so a message that
// comes again is noticed; a chunk that comes again is refused by its handoff. Link thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kvtransfer/protocol/wire.h"

namespace baton {

class Session {
 public:
  using Key = std::array<uint8_t, 32>;
  static constexpr size_t kSealBytes = 8 + 16;  // number and MAC, behind a message

  // is_source: this end of the connection is the source's.
  Session(const Key& key, bool is_source);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Returns the message with number and MAC behind it.
  std::string Seal(std::string message);
  enum class Opened { kGood, kRepeated, kForged };
  // Cuts number and MAC off a message of the other end. kRepeated: it is no later one than the
  // last.
  Opened Open(std::string_view* message);

  // Sets number and MAC of a chunk's header. payload: header->length bytes.
  void Sign(wire::ChunkHeader* header, const std::byte* payload);
  bool Verify(const wire::ChunkHeader& header, const std::byte* payload);

 private:
  enum class Kind : uint8_t { kOfSource, kOfSink, kChunk };
  struct Cipher;
  using Mac = std::array<uint8_t, 16>;
  Mac Compute(Kind kind, uint64_t number, std::string_view first, std::string_view rest);
  Mac OfChunk(wire::ChunkHeader header, const std::byte* payload);

  const std::unique_ptr<Cipher> cipher_;
  const bool is_source_;
  uint64_t sent_ = 0, opened_ = 0, chunks_ = 0;  // the last numbers
};

}  // namespace baton
