#include "server/http/http_server.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "server/http/http_connection.h"

namespace baton {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

absl::Status HttpServer::Core::Listen() {
  const auto error = [&](const error_code& ec) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.host, ":", options.port,
                                               ": ", ec.message(),
                                               "; choose another --host or --port"));
  };
  error_code ec;
  // Blocks, as nothing is served yet. An address is taken as it is.
  const auto found = tcp::resolver(loop->context())
                         .resolve(options.host, absl::StrCat(options.port),
                                  tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  if (ec || found.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", options.host,
                                                   "\" is no address and no name of this machine (",
                                                   ec.message(), "); set --host to one"));
  }
  for (const auto& entry : found) {  // the first one that this machine has
    const tcp::endpoint endpoint = entry.endpoint();
    acceptor.close(ec);
    acceptor.open(endpoint.protocol(), ec);
    if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor.bind(endpoint, ec);
    if (!ec) acceptor.listen(tcp::acceptor::max_listen_connections, ec);
    if (!ec) return absl::OkStatus();
  }
  return error(ec);
}

void HttpServer::Core::Accept() {
  acceptor.async_accept([self = shared_from_this()](const error_code& ec, tcp::socket socket) {
    if (self->handler == nullptr) return;
    if (ec) {  // out of descriptors, most likely: some may come free
      LogWarn("cannot accept a connection: %s", ec.message());
      auto timer = std::make_shared<asio::steady_timer>(self->loop->context());
      timer->expires_after(std::chrono::milliseconds(100));
      timer->async_wait([self, timer](const error_code& stopped) {
        if (!stopped && self->handler != nullptr) self->Accept();
      });
      return;
    }
    if (static_cast<int>(self->connections.size()) >= self->options.max_connections) {
      HttpReply reply = self->handler->OnBadRequest({}, 503, "too many connections");
      reply.close = true;
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(ReplyHead(reply, {}) + reply.body), ignored);
    } else {
      auto connection = std::make_shared<HttpConnection>(self, std::move(socket));
      self->connections.insert(connection);
      connection->Start();
    }
    self->Accept();
  });
}

void HttpServer::Core::Close() {
  handler = nullptr;
  drained = nullptr;
  error_code ignored;
  acceptor.close(ignored);
  const auto open = std::move(connections);
  connections.clear();
  for (const auto& connection : open) connection->Close();
}

void HttpServer::Core::CheckDrained() {
  if (!draining || !drained || handler == nullptr) return;
  for (const auto& connection : connections) {
    if (!connection->quiet()) return;
  }
  loop->Post(std::exchange(drained, nullptr));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(EventLoop* loop,
                                                              const HttpServerOptions& options,
                                                              HttpHandler* handler) {
  auto core = std::make_shared<Core>(loop, options, handler);
  RETURN_IF_ERROR(core->Listen());
  core->Accept();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(core)));
}

HttpServer::HttpServer(std::shared_ptr<Core> core) : core_(std::move(core)) {}
HttpServer::~HttpServer() { core_->Close(); }

int HttpServer::port() const {
  error_code ignored;
  return core_->acceptor.local_endpoint(ignored).port();
}
int HttpServer::n_connections() const { return static_cast<int>(core_->connections.size()); }

void HttpServer::Reply(ExchangeId id, const HttpReply& reply) {
  const auto found = core_->exchanges.find(id);
  if (found == core_->exchanges.end()) return;
  const auto connection = found->second;
  connection->Reply(reply);
}
void HttpServer::StartStream(ExchangeId id, const HttpReply& head) {
  const auto found = core_->exchanges.find(id);
  if (found != core_->exchanges.end()) found->second->StartStream(head);
}
void HttpServer::Write(ExchangeId id, std::string_view bytes, size_t owed) {
  const auto found = core_->exchanges.find(id);
  if (found != core_->exchanges.end()) found->second->Write(bytes, owed);
}
void HttpServer::EndStream(ExchangeId id) {
  const auto found = core_->exchanges.find(id);
  if (found == core_->exchanges.end()) return;
  const auto connection = found->second;
  connection->EndStream();
}

void HttpServer::Drain(std::function<void()> drained) {
  core_->draining = true;
  core_->drained = std::move(drained);
  const auto open = core_->connections;
  for (const auto& connection : open) {
    if (connection->idle()) connection->Close();
  }
  core_->CheckDrained();
}

}  // namespace baton
