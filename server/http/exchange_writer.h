// The side of a server that answers go to: HttpServer, or the server of gRPC. An exchange is one
// call and its answer, which comes now or later: Reply once, or StartStream, Write*, and one of
// EndStream and FailStream. Calls for an exchange whose client has gone do nothing. Loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "server/http/http_message.h"

namespace baton {

using ExchangeId = uint64_t;  // never 0, never used again; those of gRPC: from kFirstGrpcExchange
inline constexpr ExchangeId kFirstGrpcExchange = ExchangeId{1} << 63;

class ExchangeWriter {
 public:
  virtual ~ExchangeWriter() = default;
  virtual void Reply(ExchangeId id, const HttpReply& reply) = 0;
  // `head` without body; its bytes go out with the first Write.
  virtual void StartStream(ExchangeId id, const HttpReply& head) = 0;
  // Bytes written in one turn of the loop leave in one piece. owed: so many of the stream, up to
  // and with these, were written as fast as no client reads; they may wait beside max_unsent.
  virtual void Write(ExchangeId id, std::string_view bytes, size_t owed) = 0;
  virtual void EndStream(ExchangeId id) = 0;
  // Ends a stream that has begun and goes wrong. `why` is told where the protocol has a place for
  // it: HTTP has none but the stream itself.
  virtual void FailStream(ExchangeId id, const HttpReply& why) = 0;
  // Takes no more calls. Calls `drained` once, from the loop, when no exchange is open and every
  // byte is written.
  virtual void Drain(std::function<void()> drained) = 0;
};

}  // namespace baton
