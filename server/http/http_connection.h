// One connection of an HttpServer, and the state that all connections share. Private to
// http_server.cc and http_connection.cc. Loop's thread.
#pragma once

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "common/unix_listener.h"
#include "server/http/answer_bytes.h"
#include "server/http/answer_rate.h"
#include "server/http/body_rate.h"
#include "server/http/byte_budget.h"
#include "server/http/fair_queue.h"
#include "server/http/hangup_watch.h"
#include "server/http/http_server.h"
#include "server/http/owned_connections.h"
#include "server/http/served_certificate.h"
#include "server/http/tls_handshakes.h"
#include "server/http/transport.h"
#include "server/http/unread_answers.h"

namespace baton {

class HttpConnection;

class HttpServer::Core : public std::enable_shared_from_this<HttpServer::Core> {
 public:
  Core(EventLoop* event_loop, const HttpServerOptions& o, HttpHandler* h);

  absl::Status Listen();  // errors of HttpServer::Start
  template <typename Acceptor>
  void Accept(Acceptor* from);
  void Close();
  void CheckDrained();
  // Input of one connection is read and parsed per turn of the loop, and addresses take turns, so
  // that whatever one of them sends, the others wait for 64 KiB or one request of it at most, and
  // have most of the loop's time (TurnShare). It goes on now if this turn is free.
  void GoOn(uint64_t peer, const std::shared_ptr<HttpConnection>& connection);
  void GoOnLater(uint64_t peer, const std::shared_ptr<HttpConnection>& connection);
  // Counts a connection as this owner's (0: nobody, and nothing changes). A full owner gives up its
  // idlest one; false: it has none that is idle.
  bool Own(uint64_t owner, OwnedConnections::Place* place);
  // Refuses who sends too much of requests that are not whole: `sender`, which sent last, if its
  // address is over its budget. If all are over theirs, the address that holds most pays: with
  // `sender`, if that is its own (Unix sockets count as one), else with its largest.
  void KeepIncomingInBudget(uint64_t peer, HttpConnection* sender);
  // Gives memory back to the system when far less of it is held than before: small pieces that a
  // crowd held stay with the C library otherwise, and what others need later comes on top.
  void ReturnFreedMemory();
  // Gives up who reads most slowly until answers that wait are within their budget.
  void KeepUnsentInBudget(uint64_t peer);

  EventLoop* loop;
  const HttpServerOptions options;
  HttpHandler* handler;  // null after Close
  HttpStats stats;
  boost::asio::ip::tcp::acceptor tcp_acceptor;
  boost::asio::local::stream_protocol::acceptor unix_acceptor;
  std::unique_ptr<UnixListener> unix_file;         // null: no Unix socket
  std::unique_ptr<ServedCertificate> certificate;  // null: no TLS
  std::unique_ptr<TlsHandshakes> handshakes;       // the same
  HangupWatch hangups;                             // watches connections that do not read now
  absl::flat_hash_map<ExchangeId, std::shared_ptr<HttpConnection>> exchanges;
  absl::flat_hash_set<std::shared_ptr<HttpConnection>> connections;
  absl::flat_hash_map<uint64_t, int> of_peer;          // connections, by Transport::peer
  FairQueue<std::shared_ptr<HttpConnection>> waiting;  // for a turn of their own, by address
  bool turn_taken = false;                             // and the next one comes
  EventLoop::Timer rest_timer;                         // somebody who rests goes on
  absl::Time rests_until = absl::InfiniteFuture();     // when rest_timer fires
  std::list<HttpConnection*> idle;                     // wait for a request; the idlest first
  OwnedConnections owned;
  ByteBudget incoming;   // bytes that have come, and are not part of a whole request
  UnreadAnswers unread;  // memory of answers that the kernel has not taken as a whole
  ExchangeId next_exchange = 1;
  size_t peak_held = 0;         // bytes, since freed memory was last given back
  EventLoop::Timer trim_timer;  // freed memory goes back
  bool will_trim = false;
  std::array<char, 64 << 10> read_buffer;  // shared: one connection reads at a time
  bool draining = false;
  std::function<void()> drained;

 private:
  absl::Status ListenTcp();
  absl::Status ListenUnix();
  absl::Status StartTls();
  void OnAccepted(Transport transport, bool wants_tls);
  std::shared_ptr<HttpConnection> Admit(Transport transport);
  bool HasRoom(uint64_t peer);
  bool GiveUpIdlest(const std::list<HttpConnection*>& of);
  std::shared_ptr<HttpConnection> LargestSender() const;
  void TakeTurn();
  void EndTurn();
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpServer::Core> core, Transport transport);

  void Start();
  // Answers with an error of the connection's own, after which it is not used again. While another
  // answer is made, that one is the last, and the error is not told.
  void Refuse(int status, const std::string& message);
  void Reply(const HttpReply& reply);
  void StartStream(const HttpReply& head);
  void Write(std::string_view bytes, size_t owed);
  void EndStream();
  bool GoOn();    // reads and takes what came, in its turn; false: it is closed and takes none
  void Close();   // closes at once, without OnGone
  void GiveUp();  // drops what waits, and closes with OnGone in the loop's next turn
  // Bytes that its address (if it has one) and it hold of requests that are not whole.
  struct Share {
    size_t of_address = 0, own = 0;
    uint64_t peer = 0;  // of the address
    auto operator<=>(const Share&) const = default;
  };
  Share Incoming() const {
    const uint64_t peer = transport_.peer();
    return {std::max(incoming_, core_->incoming.of(peer)), incoming_, peer};
  }
  // True if no answer is owed, every byte is written, and nothing that came waits for its turn.
  bool quiet() const {
    return phase_ != Phase::kAnswering && answer_.all_begun() && !is_writing_ && !streaming_ &&
           !turn_due();
  }
  // True if quiet and no byte of another request has come.
  bool idle() const {
    return phase_ == Phase::kReading && !parser_.started() && input_.empty() && quiet();
  }

 private:
  // kAnswering: until so much of the answer is written that the next request may be taken.
  // kDiscarding: the last answer is out, input is read and dropped so that it is not lost to a
  // reset.
  enum class Phase { kReading, kAnswering, kDiscarding, kClosed };

  void AwaitInput();
  bool turn_due() const { return read_due_ || parse_due_; }
  void CountIncoming();
  void OnInput(const boost::system::error_code& ec);
  void Read();
  void Parse();
  bool OnHead();
  void OnComplete();
  void FinishAnswer(bool close);
  void GoOnIfWritten();
  void NextRequest();
  void CloseWhenWritten();
  void ScheduleFlush();
  void Flush();
  void WatchClient();
  bool LookAtClient();
  void OnWritten(const boost::system::error_code& ec, size_t n);
  void EndWriting();
  void SetIdle(bool idle);
  void Gone();
  void SetDeadline(absl::Duration after);
  void ArmTimer();
  void LookAtDeadlines();

  std::shared_ptr<HttpServer::Core> core_;
  Transport transport_;
  boost::asio::steady_timer timer_;
  Phase phase_ = Phase::kReading;
  HttpParser parser_;
  HttpRequest answered_;  // head of the request that is being answered
  ExchangeId exchange_ = 0;
  std::string input_;
  AnswerBytes answer_;
  std::string stream_head_;
  bool streaming_ = false, awaiting_input_ = false, is_writing_ = false, flush_posted_ = false;
  bool close_after_write_ = false, used_before_ = false, input_ended_ = false, timer_armed_ = false;
  bool given_up_ = false;
  // The connection waits for its turn, in which it reads what the kernel has, or parses what was
  // read.
  bool read_due_ = false, parse_due_ = false;
  size_t discarded_ = 0;  // bytes, in kDiscarding
  size_t incoming_ = 0;   // bytes, as counted in Core
  absl::Time deadline_ = absl::InfiniteFuture();
  absl::Time armed_for_;  // valid while timer_armed_
  BodyRate body_rate_;
  AnswerRate answer_rate_;
  UnreadAnswers::Place unread_;                                     // in Core::unread
  std::optional<std::list<HttpConnection*>::iterator> idle_place_;  // in Core::idle
  OwnedConnections::Place owned_place_;                             // in Core::owned
};

}  // namespace baton
