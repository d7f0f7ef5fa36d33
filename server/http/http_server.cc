#include "server/http/http_server.h"

#include <malloc.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/http/http_connection.h"

namespace baton {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {
constexpr int kMaxIdleLooks = 64;
constexpr size_t kConnectionBytes = 4 << 10;  // of one that waits
constexpr size_t kReturnedAtOnce = 8 << 20;   // bytes
constexpr absl::Duration kTrimInterval = absl::Seconds(1);
constexpr int kAcceptsPerTurn =
    32;  // who comes last waits for few turns, however many come at once

int HalfUnlessSet(int max, const HttpServerOptions& options) {
  return max > 0 ? max : std::max(1, options.max_connections / 2);
}

// A budget that lets the largest request pass.
size_t OneRequest(size_t max, const HttpLimits& limits) {
  return std::max(max, limits.max_header + limits.max_body);
}
}  // namespace

HttpServer::Core::Core(EventLoop* event_loop, const HttpServerOptions& o, HttpHandler* h)
    : loop(event_loop),
      options(o),
      handler(h),
      tcp_acceptor(event_loop->context()),
      unix_acceptor(event_loop->context()),
      hangups(event_loop),
      waiting({.of_time = o.loop_share_per_address}),
      rest_timer(event_loop),
      owned(HalfUnlessSet(o.max_per_key, o)),
      incoming(OneRequest(o.max_incoming, o.limits),
               OneRequest(o.max_incoming_per_address, o.limits)),
      unread(o.max_unsent_total, o.max_unsent_per_address),
      trim_timer(event_loop) {}

absl::Status HttpServer::Core::Listen() {
  if (options.port < 0 && options.uds.empty()) return CheckFiles(options);
  if (options.tls.any()) RETURN_IF_ERROR(StartTls());
  if (options.port >= 0) RETURN_IF_ERROR(ListenTcp());
  if (!options.uds.empty()) RETURN_IF_ERROR(ListenUnix());
  return absl::OkStatus();
}

absl::Status HttpServer::Core::StartTls() {
  ASSIGN_OR_RETURN(certificate, ServedCertificate::Load(loop, options.tls, &stats));
  const std::weak_ptr<Core> weak = weak_from_this();
  handshakes = std::make_unique<TlsHandshakes>(
      loop,
      TlsHandshakes::Options{.max = options.max_handshakes, .deadline = options.handshake_timeout},
      &stats,
      [weak](Transport transport) {
        if (const auto self = weak.lock()) self->Admit(std::move(transport));
      },
      [weak](Transport transport) {
        const auto self = weak.lock();
        const auto connection = self ? self->Admit(std::move(transport)) : nullptr;
        if (connection) connection->Refuse(400, "this port speaks TLS: use https://");
      });
  return absl::OkStatus();
}

absl::Status HttpServer::Core::ListenTcp() {
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
    tcp_acceptor.close(ec);
    tcp_acceptor.open(endpoint.protocol(), ec);
    if (!ec) tcp_acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) tcp_acceptor.bind(endpoint, ec);
    if (!ec) tcp_acceptor.listen(tcp::acceptor::max_listen_connections, ec);
    if (!ec) return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("cannot listen on ", options.host, ":", options.port,
                                             ": ", ec.message(),
                                             "; choose another --host or --port"));
}

absl::Status HttpServer::Core::ListenUnix() {
  ASSIGN_OR_RETURN(
      unix_file,
      UnixListener::Listen(options.uds, static_cast<mode_t>(options.uds_mode), "server.uds"));
  unix_acceptor.assign(asio::local::stream_protocol(), unix_file->Release());
  return absl::OkStatus();
}

template <typename Acceptor>
void HttpServer::Core::Accept(Acceptor* from) {
  if (!from->is_open()) return;
  error_code ignored;
  from->non_blocking(true, ignored);
  from->async_accept([self = shared_from_this(), from](
                         const error_code& ec, typename Acceptor::protocol_type::socket socket) {
    if (self->handler == nullptr) return;
    if (ec) {  // out of descriptors, most likely: some may come free
      LogWarn("cannot accept a connection: %s", ec.message());
      auto timer = std::make_shared<asio::steady_timer>(self->loop->context());
      timer->expires_after(std::chrono::milliseconds(100));
      timer->async_wait([self, timer, from](const error_code& stopped) {
        if (!stopped && self->handler != nullptr) self->Accept(from);
      });
      return;
    }
    const bool wants_tls = std::is_same_v<Acceptor, tcp::acceptor> && self->handshakes != nullptr;
    self->OnAccepted(Transport(std::move(socket)), wants_tls);
    for (int more = 1; more < kAcceptsPerTurn && from->is_open(); ++more) {
      typename Acceptor::protocol_type::socket next(self->loop->context());
      error_code none;
      from->accept(next, none);
      if (none) break;
      self->OnAccepted(Transport(std::move(next)), wants_tls);
    }
    self->Accept(from);
  });
}

void HttpServer::Core::OnAccepted(Transport transport, bool wants_tls) {
  if (wants_tls) {
    handshakes->Begin(std::move(transport), certificate->context());
  } else {
    Admit(std::move(transport));
  }
}

// Null: refused.
std::shared_ptr<HttpConnection> HttpServer::Core::Admit(Transport transport) {
  const uint64_t peer = transport.peer();
  if (!HasRoom(peer)) {
    ++stats.refused;
    HttpReply reply = handler->OnBadRequest({}, 503, "too many connections");
    reply.close = true;
    transport.WriteNow(ReplyHead(reply, {}) + reply.body);
    return nullptr;
  }
  ++of_peer[peer];
  ++stats.opened[static_cast<size_t>(transport.kind())];
  auto connection = std::make_shared<HttpConnection>(shared_from_this(), std::move(transport));
  connections.insert(connection);
  connection->Start();
  return connection;
}

// A server that is full gives up who has waited longest without a request.
bool HttpServer::Core::HasRoom(uint64_t peer) {
  const int max_per_peer = HalfUnlessSet(options.max_per_address, options);
  const auto of_this = of_peer.find(peer);
  if (peer != 0 && of_this != of_peer.end() && of_this->second >= max_per_peer) return false;
  if (static_cast<int>(connections.size()) < options.max_connections) return true;
  return GiveUpIdlest(idle);
}

bool HttpServer::Core::Own(uint64_t owner, OwnedConnections::Place* place) {
  if (owner == 0 || owner == place->owner) return true;
  if (!owned.HasRoom(owner) && !GiveUpIdlest(owned.IdleOf(owner))) return false;
  owned.Join(owner, place);
  return true;
}

bool HttpServer::Core::GiveUpIdlest(const std::list<HttpConnection*>& of) {
  int looks = kMaxIdleLooks;
  for (HttpConnection* idlest : of) {
    if (idlest->idle()) {
      ++stats.idle_closed;
      idlest->Close();
      return true;
    }
    if (--looks == 0) break;  // answers to them are still on their way
  }
  return false;
}

void HttpServer::Core::GoOn(uint64_t peer, const std::shared_ptr<HttpConnection>& connection) {
  waiting.Push(peer, connection);
  if (!turn_taken) TakeTurn();
}

void HttpServer::Core::GoOnLater(uint64_t peer, const std::shared_ptr<HttpConnection>& connection) {
  waiting.Push(peer, connection);
  if (!turn_taken) EndTurn();
}

// Whoever comes before the next turn waits for it.
void HttpServer::Core::EndTurn() {
  turn_taken = true;
  asio::post(loop->context(), [self = shared_from_this()] { self->TakeTurn(); });
}

void HttpServer::Core::TakeTurn() {
  turn_taken = true;
  while (const auto connection = waiting.Begin(MonotonicNow())) {
    const bool took = (*connection)->GoOn();
    waiting.End(MonotonicNow());
    if (took) return EndTurn();
  }
  turn_taken = false;
  if (waiting.next() == rests_until) return;
  rests_until = waiting.next();
  rest_timer.Set(rests_until, [this] {
    rests_until = absl::InfiniteFuture();
    if (!turn_taken) TakeTurn();
  });
}

// The largest sender of the address that holds most. Each sender without an address (a Unix socket)
// stands for itself.
std::shared_ptr<HttpConnection> HttpServer::Core::LargestSender() const {
  std::shared_ptr<HttpConnection> largest;
  HttpConnection::Share max;
  for (const auto& connection : connections) {
    const HttpConnection::Share of_this = connection->Incoming();
    if (of_this.own == 0 || of_this <= max) continue;
    largest = connection;
    max = of_this;
  }
  return largest;
}

void HttpServer::Core::KeepIncomingInBudget(uint64_t peer, HttpConnection* sender) {
  constexpr char kTooMuch[] = "too many bytes of requests are on their way; try again";
  if (incoming.IsOver(peer)) {
    ++stats.incoming_refused;
    sender->Refuse(503, kTooMuch);
  }
  while (incoming.IsOver()) {
    const auto largest = LargestSender();
    if (largest == nullptr) return;
    // Lets go on who came first: else nothing large would get to its end.
    const uint64_t payer = largest->Incoming().peer;
    const bool is_own = payer == peer && sender->Incoming().own > 0;
    ++stats.incoming_refused;
    (is_own ? sender : largest.get())->Refuse(503, kTooMuch);
  }
}

void HttpServer::Core::ReturnFreedMemory() {
  const size_t held = incoming.total() + connections.size() * kConnectionBytes;
  peak_held = std::max(peak_held, held);
  if (peak_held - held < kReturnedAtOnce) return;
  peak_held = held;
  // Giving back much takes some 10 ms, so clients cannot ask for it at will.
  if (std::exchange(will_trim, true)) return;
  trim_timer.Set(MonotonicNow() + kTrimInterval, [this] {
    will_trim = false;
    ::malloc_trim(0);
  });
}

void HttpServer::Core::KeepUnsentInBudget(uint64_t peer) {
  const absl::Time now = MonotonicNow();
  while (const UnreadAnswers::Place* slowest = unread.Slowest(peer, now)) {
    ++stats.unread_closed;
    slowest->connection->GiveUp();
  }
}

void HttpServer::Core::Close() {
  handler = nullptr;
  drained = nullptr;
  error_code ignored;
  tcp_acceptor.close(ignored);
  unix_acceptor.close(ignored);
  unix_file.reset();
  handshakes.reset();
  certificate.reset();
  waiting.Clear();
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
  core->Accept(&core->tcp_acceptor);
  core->Accept(&core->unix_acceptor);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(core)));
}

HttpServer::HttpServer(std::shared_ptr<Core> core) : core_(std::move(core)) {}
HttpServer::~HttpServer() { core_->Close(); }

int HttpServer::port() const {
  error_code ignored;
  return core_->options.port < 0 ? -1 : core_->tcp_acceptor.local_endpoint(ignored).port();
}
int HttpServer::n_connections() const { return static_cast<int>(core_->connections.size()); }

HttpStats HttpServer::stats() const {
  HttpStats stats = core_->stats;
  stats.open = n_connections();
  stats.incoming = static_cast<int64_t>(core_->incoming.total());
  stats.unsent = static_cast<int64_t>(core_->unread.total());
  if (core_->certificate) stats.certificate_left = core_->certificate->context()->left();
  return stats;
}

void HttpServer::ReloadCertificate() {
  if (core_->certificate) core_->certificate->Reload();
}

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
