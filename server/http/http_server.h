// HTTP/1.1 connections over TCP, TLS and a Unix socket: reads requests (HttpParser), hands them to
// a handler, writes its answers. Everything runs on the loop's thread.
//
// An exchange is one request and its answer. The handler answers now or later: Reply once, or
// StartStream, Write*, EndStream. If the client goes away first, or does not read what is written
// (more than max_unsent bytes wait, or fewer than min_write_rate are taken, or it is the slowest
// while too many bytes wait for all clients or those of its address), OnGone is called, once, and
// later calls for that exchange do nothing. One exchange at a time per connection; what a client
// sends ahead waits, at most 16 KiB of it here, until less than 64 KiB of the answers before it are
// left to be written; then requests are taken one per turn of the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/status.h"
#include "server/http/event_loop.h"
#include "server/http/exchange_writer.h"
#include "server/http/http_message.h"
#include "server/http/http_parser.h"
#include "server/http/http_server_options.h"
#include "server/http/http_stats.h"

namespace baton {

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Called when the header is whole and before the body is read. A reply is sent instead of reading
  // the body. What it sets in *request, OnRequest gets.
  virtual std::optional<HttpReply> OnHead(HttpRequest* request) = 0;
  virtual void OnRequest(ExchangeId id, HttpRequest request) = 0;
  virtual void OnGone(ExchangeId id) = 0;  // nobody waits for the answer any more
  // Returns the answer to a request that is not HTTP, too large or too slow, or to a connection
  // beyond max_connections, those of its address or owner, or without the TLS of its port. request:
  // as far as it was read. status: of HTTP.
  virtual HttpReply OnBadRequest(const HttpRequest& request, int status,
                                 const std::string& message) = 0;
};

class HttpServer : public ExchangeWriter {
 public:
  // Binds and listens. InvalidArgument: the host is no IP address, nothing is to be listened on, or
  // an error of TlsContext::Load or UnixListener::Listen. Unavailable: address and port cannot be
  // bound; the error names both. Loop and handler must outlive the server.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(EventLoop* loop,
                                                           const HttpServerOptions& options,
                                                           HttpHandler* handler);
  ~HttpServer() override;  // closes everything, without OnGone
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;  // -1: no TCP
  int n_connections() const;
  HttpStats stats() const;
  void ReloadCertificate();  // from its files; new connections get it

  void Reply(ExchangeId id, const HttpReply& reply) override;
  void StartStream(ExchangeId id, const HttpReply& head) override;
  void Write(ExchangeId id, std::string_view bytes, size_t owed = 0) override;
  void EndStream(ExchangeId id) override;
  void FailStream(ExchangeId id, const HttpReply&) override { EndStream(id); }
  // From now on every answer ends its connection, and idle connections are closed.
  void Drain(std::function<void()> drained) override;

  class Core;

 private:
  explicit HttpServer(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

}  // namespace baton
