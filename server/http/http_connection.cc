#include "server/http/http_connection.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "common/check.h"
#include "common/clock.h"

namespace baton {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr size_t kMaxAhead = 16 << 10;   // bytes of later requests kept while one is answered
constexpr size_t kMaxLeft = 64 << 10;    // of an answer, not written when the next request is taken
constexpr size_t kMaxDiscard = 1 << 20;  // bytes read and dropped before a close
constexpr absl::Duration kDiscardTime = absl::Seconds(2);

// Whether the answer to the request may have one: behind it the next answer would begin.
bool HasBody(const HttpRequest& request) { return request.method != "HEAD"; }

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpServer::Core> core, Transport transport)
    : core_(std::move(core)),
      transport_(std::move(transport)),
      timer_(core_->loop->context()),
      parser_(core_->options.limits),
      body_rate_(core_->options.body_timeout, core_->options.slow_body_grace),
      answer_rate_(core_->options.write_timeout,
                   static_cast<int64_t>(core_->options.min_write_rate)),
      unread_{.connection = this, .peer = transport_.peer()} {}

void HttpConnection::Start() {
  SetDeadline(core_->options.header_timeout);
  SetIdle(true);
  AwaitInput();
}

// Counts the memory of what has come and is not part of a whole request.
void HttpConnection::CountIncoming() {
  if (phase_ == Phase::kClosed) return;
  if (input_.empty()) GiveBack(&input_);
  const size_t before = incoming_;
  core_->incoming.Hold(transport_.peer(), input_.size() + parser_.body_bytes(), &incoming_);
  core_->ReturnFreedMemory();
  if (incoming_ > before) core_->KeepIncomingInBudget(transport_.peer(), this);
}

// Not at once: the caller may be inside the handler.
void HttpConnection::GiveUp() {
  given_up_ = true;
  answer_.DropPending();
  core_->unread.Hold(0, false, MonotonicNow(), &unread_);
  asio::post(core_->loop->context(), [self = shared_from_this()] { self->Gone(); });
}

void HttpConnection::AwaitInput() {
  if (awaiting_input_ || read_due_ || input_ended_ || phase_ == Phase::kClosed) return;
  // Whole requests may lie there: nothing more is read before they are taken. A client that is owed
  // an answer and goes away behind what is not read here would not be noticed. One that is owed
  // none has answers on their way, and whether it takes them is seen by writing.
  if (input_.size() >= kMaxAhead && (phase_ == Phase::kAnswering || parse_due_)) {
    core_->hangups.Add(transport_.native_handle(), core_->options.finish_half_closed,
                       [self = shared_from_this()] {
                         if (self->exchange_ != 0) self->Gone();
                       });
    return;
  }
  core_->hangups.Remove(transport_.native_handle());
  awaiting_input_ = true;
  transport_.AwaitInput([self = shared_from_this()](const error_code& ec) { self->OnInput(ec); });
}

// Reading, too, waits for the connection's turn: what a crowd sends at once is read between what
// others send, not before it.
void HttpConnection::OnInput(const error_code& wait_error) {
  awaiting_input_ = false;
  if (phase_ == Phase::kClosed) return;
  if (wait_error) return Gone();
  const bool waits = turn_due();
  read_due_ = true;
  if (!waits) core_->GoOn(transport_.peer(), shared_from_this());
}

void HttpConnection::Read() {
  error_code ec;
  const size_t n = transport_.ReadSome(core_->read_buffer, ec);
  if (ec == asio::error::would_block) return;
  if (ec) {
    const bool answers_are_out = exchange_ == 0 && (is_writing_ || !answer_.empty() || parse_due_);
    const bool wants_answer = exchange_ != 0 && core_->options.finish_half_closed;
    if (ec != asio::error::eof || !(answers_are_out || wants_answer)) return Gone();
    input_ended_ = true;  // the end of the answers ends the connection
    if (phase_ == Phase::kReading && !parse_due_) CloseWhenWritten();
    return;
  }
  if (phase_ == Phase::kDiscarding) {
    discarded_ += n;
    if (discarded_ > kMaxDiscard) Close();
    return;
  }
  input_.append(core_->read_buffer.data(), n);
  SetIdle(false);
  if (phase_ != Phase::kReading) return;
  if (parser_.in_body()) body_rate_.Add(MonotonicNow(), n);
  parse_due_ = true;
}

// One request at most: the next one has a turn of its own.
void HttpConnection::Parse() {
  while (phase_ == Phase::kReading && (!input_.empty() || parser_.in_body())) {
    if (used_before_ && !parser_.started()) SetDeadline(core_->options.header_timeout);
    switch (parser_.Take(&input_)) {
      case HttpParser::Progress::kNeedMore:
        if (input_ended_) CloseWhenWritten();
        return;
      case HttpParser::Progress::kHead:
        if (!OnHead()) return;
        break;
      case HttpParser::Progress::kComplete:
        OnComplete();
        return;
      case HttpParser::Progress::kError:
        Refuse(parser_.error().status, parser_.error().message);
        return;
    }
  }
}

// False: answered already, without reading the body.
bool HttpConnection::OnHead() {
  const absl::Time now = MonotonicNow();
  body_rate_.Start(now);
  body_rate_.Add(now, input_.size());
  SetDeadline(body_rate_.look_every());
  HttpRequest& request = parser_.request();
  auto reply = core_->handler->OnHead(&request);
  const bool has_room = core_->Own(request.owner, &owned_place_);
  if (reply) {
    answered_ = request;
    phase_ = Phase::kAnswering;
    // Bytes of the body may be on their way.
    reply->close = reply->close || request.has_body || !has_room;
    Reply(*reply);
    return false;
  }
  if (!has_room) {
    ++core_->stats.refused;
    Refuse(429, "too many connections of this API key");
    return false;
  }
  if (request.expects_continue && input_.empty()) {
    *answer_.end() += "HTTP/1.1 100 Continue\r\n\r\n";
    Flush();
  }
  return true;
}

void HttpConnection::OnComplete() {
  phase_ = Phase::kAnswering;
  deadline_ = absl::InfiniteFuture();
  HttpRequest request = std::move(parser_.request());
  answered_.method = request.method;
  answered_.keep_alive = request.keep_alive;
  answered_.is_http_1_0 = request.is_http_1_0;
  request.client.address = transport_.peer();
  exchange_ = core_->next_exchange++;
  core_->exchanges.emplace(exchange_, shared_from_this());
  const ExchangeId exchange = exchange_;
  core_->handler->OnRequest(exchange_, std::move(request));
  // The end was seen before this request was taken; not from here, the caller may be inside Parse.
  if (input_ended_ && exchange_ == exchange && !core_->options.finish_half_closed) {
    asio::post(core_->loop->context(), [self = shared_from_this(), exchange] {
      if (self->exchange_ == exchange) self->Gone();
    });
  }
}

void HttpConnection::Refuse(int status, const std::string& message) {
  // Drops what was sent ahead: the answer before it is the last one.
  if (phase_ != Phase::kReading) {
    GiveBack(&input_);
    core_->incoming.Hold(transport_.peer(), 0, &incoming_);
    return CloseWhenWritten();
  }
  answered_ = HttpRequest();
  answered_.keep_alive = false;
  phase_ = Phase::kAnswering;
  SetIdle(false);
  HttpReply reply = core_->handler->OnBadRequest(parser_.request(), status, message);
  reply.close = true;
  parser_ = HttpParser(core_->options.limits);  // and what it has of a body
  GiveBack(&input_);
  CountIncoming();
  Reply(reply);
}

void HttpConnection::Reply(const HttpReply& reply) {
  if (core_->draining && !reply.close) {
    HttpReply last = reply;
    last.close = true;
    return Reply(last);
  }
  deadline_ = absl::InfiniteFuture();
  *answer_.end() += ReplyHead(reply, answered_);
  if (HasBody(answered_)) *answer_.end() += reply.body;
  FinishAnswer(reply.close || !answered_.keep_alive);
}

void HttpConnection::StartStream(const HttpReply& head) {
  BATON_CHECK(!streaming_);
  streaming_ = true;
  if (core_->draining) answered_.keep_alive = false;
  stream_head_ = StreamHead(head, answered_);
  if (head.close) answered_.keep_alive = false;
}

void HttpConnection::Write(std::string_view bytes, size_t owed) {
  BATON_CHECK(streaming_);
  *answer_.end() += stream_head_;
  stream_head_.clear();
  if (given_up_) return;
  if (HasBody(answered_)) AppendChunk(bytes, answered_.is_http_1_0, answer_.end());
  if (answer_.size() > core_->options.max_unsent + owed) return GiveUp();
  ScheduleFlush();
}

void HttpConnection::EndStream() {
  BATON_CHECK(streaming_);
  streaming_ = false;
  *answer_.end() += stream_head_;
  stream_head_.clear();
  if (HasBody(answered_)) AppendLastChunk(answered_.is_http_1_0, answer_.end());
  FinishAnswer(answered_.is_http_1_0 || !answered_.keep_alive);
}

// The whole answer is in answer_.
void HttpConnection::FinishAnswer(bool close) {
  core_->exchanges.erase(exchange_);
  exchange_ = 0;
  close_after_write_ = close_after_write_ || close || core_->draining;
  ScheduleFlush();
  GoOnIfWritten();
}

// A client that sends requests and reads no answers piles up one answer here, not all of them.
void HttpConnection::GoOnIfWritten() {
  const bool answered = phase_ == Phase::kAnswering && exchange_ == 0;
  if (answered && !close_after_write_ && !given_up_ && answer_.size() < kMaxLeft) NextRequest();
}

void HttpConnection::NextRequest() {
  phase_ = Phase::kReading;
  used_before_ = true;
  parser_ = HttpParser(core_->options.limits);
  SetDeadline(core_->options.idle_timeout);
  if (!input_.empty()) {
    // Parsing waits for the next turn: the caller may be inside the handler, and other connections
    // want their turn.
    const bool waits = turn_due();
    parse_due_ = true;
    if (!waits) core_->GoOnLater(transport_.peer(), shared_from_this());
  } else if (input_ended_) {
    CloseWhenWritten();
  } else {
    SetIdle(true);
  }
  AwaitInput();
}

bool HttpConnection::GoOn() {
  if (phase_ == Phase::kClosed) return false;
  if (std::exchange(read_due_, false)) Read();
  if (std::exchange(parse_due_, false) && phase_ == Phase::kReading) Parse();
  if (flush_posted_) Flush();  // writing an answer that is there is work of this turn
  CountIncoming();
  AwaitInput();
  LookAtDeadlines();
  core_->CheckDrained();
  return true;
}

void HttpConnection::CloseWhenWritten() {
  close_after_write_ = true;
  ScheduleFlush();
}

void HttpConnection::ScheduleFlush() {
  if (!given_up_ && phase_ != Phase::kClosed) {
    core_->unread.Hold(answer_.memory(), false, MonotonicNow(), &unread_);
    core_->KeepUnsentInBudget(transport_.peer());
  }
  if (flush_posted_ || is_writing_) return;
  flush_posted_ = true;
  asio::post(core_->loop->context(), [self = shared_from_this()] {
    self->flush_posted_ = false;
    self->Flush();
  });
}

// Writes nothing more of an answer that is given up: it would end as if it were whole.
void HttpConnection::Flush() {
  if (is_writing_ || given_up_ || phase_ == Phase::kClosed) return;
  const std::string_view next = answer_.Next();
  if (next.empty()) {
    if (close_after_write_ && exchange_ == 0) EndWriting();
    return;
  }
  is_writing_ = true;
  if (!answer_rate_.watching()) WatchClient();
  transport_.AsyncWriteSome(next, [self = shared_from_this()](const error_code& ec, size_t n) {
    self->OnWritten(ec, n);
  });
}

void HttpConnection::OnWritten(const error_code& ec, size_t n) {
  is_writing_ = false;
  const bool is_whole = answer_.Took(n);
  if (phase_ == Phase::kClosed) return;
  if (!given_up_) core_->unread.Hold(answer_.memory(), true, MonotonicNow(), &unread_);
  if (ec) {
    Gone();
    return;
  }
  Flush();
  GoOnIfWritten();
  if (is_whole && core_->draining && idle()) EndWriting();
}

// Bytes are on their way: by the deadline enough of them must have arrived.
void HttpConnection::WatchClient() {
  const int64_t acknowledged = transport_.acknowledged();
  answer_rate_.Start(MonotonicNow(), acknowledged,
                     transport_.taken() - acknowledged + static_cast<int64_t>(answer_.size()));
  ArmTimer();
}

// False: the client has taken too little in all the time.
bool HttpConnection::LookAtClient() {
  const int64_t acknowledged = transport_.acknowledged();
  if (!is_writing_ && acknowledged == transport_.taken()) {
    answer_rate_.Stop();
    return true;
  }
  if (answer_rate_.IsTooSlow(acknowledged)) {
    ++core_->stats.too_slow;
    return false;
  }
  WatchClient();
  return true;
}

// The end of the bytes is written as bytes are: it may have to wait for room.
void HttpConnection::EndWriting() {
  if (phase_ == Phase::kDiscarding) return;
  is_writing_ = true;
  transport_.AsyncEnd([this, self = shared_from_this()] {
    is_writing_ = false;
    if (phase_ == Phase::kClosed) return;
    // Closing with unread input would reset the connection and lose the answer: reads on for a
    // moment.
    phase_ = Phase::kDiscarding;
    GiveBack(&input_);
    CountIncoming();
    SetDeadline(kDiscardTime);
    core_->CheckDrained();
    if (input_ended_) {
      Close();
    } else {
      AwaitInput();
    }
  });
}

void HttpConnection::Gone() {
  const ExchangeId exchange = exchange_;
  HttpHandler* handler = core_->handler;
  Close();
  if (exchange != 0 && handler != nullptr) handler->OnGone(exchange);
}

// A client that is owed nothing is told so where TLS has words for it: it can tell this from a
// connection that was cut.
void HttpConnection::Close() {
  if (phase_ == Phase::kClosed) return;
  if (quiet() && !given_up_) transport_.WriteNow({});
  phase_ = Phase::kClosed;
  SetIdle(false);
  core_->hangups.Remove(transport_.native_handle());
  core_->ReturnFreedMemory();
  core_->incoming.Hold(transport_.peer(), 0, &incoming_);
  core_->unread.Hold(0, false, MonotonicNow(), &unread_);
  const auto of_peer = core_->of_peer.find(transport_.peer());
  if (--of_peer->second == 0) core_->of_peer.erase(of_peer);
  core_->owned.Leave(&owned_place_);
  transport_.Close();
  GiveBack(&input_);  // it may still wait for its turn
  answer_.DropPending();
  timer_.cancel();
  const auto self = shared_from_this();
  core_->exchanges.erase(exchange_);
  core_->connections.erase(self);
  exchange_ = 0;
  core_->CheckDrained();
}

void HttpConnection::SetIdle(bool idle) {
  core_->owned.SetIdle(idle, this, &owned_place_);
  if (idle == idle_place_.has_value()) return;
  if (idle) {
    idle_place_ = core_->idle.insert(core_->idle.end(), this);
  } else {
    core_->idle.erase(*idle_place_);
    idle_place_.reset();
  }
}

void HttpConnection::SetDeadline(absl::Duration after) {
  deadline_ = MonotonicNow() + after;
  ArmTimer();
}

// One timer, re-armed only when it fires: moving a deadline costs nothing. It is set anew when a
// deadline came nearer. While the connection waits for its turn the server is late, not the client,
// whose deadline is looked at in that turn.
void HttpConnection::ArmTimer() {
  if (phase_ == Phase::kClosed) return;
  const absl::Time next =
      std::min(turn_due() ? absl::InfiniteFuture() : deadline_, answer_rate_.deadline());
  if (next == absl::InfiniteFuture()) return;
  if (timer_armed_ && armed_for_ <= next) return;
  timer_armed_ = true;
  armed_for_ = next;
  timer_.expires_after(
      absl::ToChronoNanoseconds(std::max(next - MonotonicNow(), absl::Milliseconds(1))));
  timer_.async_wait([self = shared_from_this()](const error_code& ec) {
    if (ec) return;  // replaced or closed
    self->timer_armed_ = false;
    self->LookAtDeadlines();
  });
}

void HttpConnection::LookAtDeadlines() {
  if (phase_ == Phase::kClosed) return;
  const absl::Time now = MonotonicNow();
  if (now >= answer_rate_.deadline() && !LookAtClient()) {
    Gone();
    return;
  }
  const bool in_body = phase_ == Phase::kReading && parser_.in_body();
  if (now >= deadline_ && !turn_due()) {
    if (in_body && !body_rate_.IsTooSlow(now)) {
      SetDeadline(body_rate_.look_every());
    } else if (phase_ == Phase::kReading && parser_.started()) {
      Refuse(408, in_body ? "the body came too slowly" : "the header came too slowly");
    } else if (phase_ != Phase::kAnswering) {
      Close();  // idle, or done
      return;
    }
  }
  ArmTimer();
}

}  // namespace baton
