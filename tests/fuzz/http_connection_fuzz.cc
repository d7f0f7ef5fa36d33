// A connection of the HTTP server, as a state machine: a client that sends several requests in
// pieces, reads or does not, ends its side or goes away at any moment, and a handler that answers
// when it likes. Each request is handed over once and ends once, answers come whole and in the
// order of their requests, and a client that is gone leaves nothing behind.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <csignal>
#include <deque>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/http/http_server.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_folder.h"

namespace baton {
namespace {

constexpr char kEnd = '\xff';  // of the bytes of one kSend
enum Act {
  kSend,
  kReply,
  kLastReply,
  kStream,
  kWrite,
  kWriteMuch,
  kEndStream,
  kRead,
  kHalfClose,
  kActs
};

// An answer that the client is to read: that of one request, or a refusal.
struct Expected {
  bool is_head = false, is_stream = false, is_http_1_0 = false;
  std::string mark;  // its body begins with it
};

// Answers when the input says so. Every exchange is open from OnRequest to its answer or OnGone.
class Handler : public HttpHandler {
 public:
  std::optional<HttpReply> OnHead(HttpRequest* request) override {
    if (request->path != "/none") return std::nullopt;
    return Marked(404, *request);
  }
  void OnRequest(ExchangeId id, HttpRequest request) override {
    BATON_CHECK(open_.emplace(id, std::move(request)).second);
    BATON_CHECK(open_.size() == 1);  // one at a time on a connection
  }
  void OnGone(ExchangeId id) override {
    BATON_CHECK(open_.erase(id) == 1);
    is_streaming_ = false;
  }
  HttpReply OnBadRequest(const HttpRequest& request, int status, const std::string&) override {
    BATON_CHECK(status >= 400 && status < 600);
    HttpReply reply = Marked(status, request);
    expected_.back().is_head = false;  // the server does not know the method for sure
    return reply;
  }

  void Begin(HttpServer* server) {
    BATON_CHECK(open_.empty());
    server_ = server;
    is_streaming_ = false;
    expected_.clear();
  }
  void Act(size_t act) {
    if (open_.empty()) return;
    const auto [id, request] = *open_.begin();
    if ((act == kReply || act == kLastReply) && !is_streaming_) {
      HttpReply reply = Marked(200, request);
      reply.close = act == kLastReply;
      open_.clear();
      server_->Reply(id, reply);
    } else if (act == kStream && !is_streaming_) {
      is_streaming_ = true;
      HttpReply head = Marked(200, request);
      expected_.back().is_stream = true;
      server_->StartStream(id, head);
      server_->Write(id, head.body);
    } else if ((act == kWrite || act == kWriteMuch) && is_streaming_) {
      server_->Write(id, std::string(act == kWrite ? 7 : 90'000, 'w'));
    } else if (act == kEndStream && is_streaming_) {
      is_streaming_ = false;
      open_.clear();
      server_->EndStream(id);
    }
  }
  void Finish() { Act(is_streaming_ ? kEndStream : kReply); }
  bool idle() const { return open_.empty(); }
  std::deque<Expected>& expected() { return expected_; }

 private:
  HttpReply Marked(int status, const HttpRequest& request) {
    HttpReply reply;
    reply.status = status;
    reply.body = absl::StrCat("answer ", ++n_answers_, "\n");
    expected_.push_back({.is_head = request.method == "HEAD",
                         .is_http_1_0 = request.is_http_1_0,
                         .mark = reply.body});
    return reply;
  }

  HttpServer* server_ = nullptr;
  std::map<ExchangeId, HttpRequest> open_;
  bool is_streaming_ = false;
  std::deque<Expected> expected_;  // from the first answer that was not read
  int n_answers_ = 0;
};

// The text up to `end`, which is passed over; nothing: the answer is cut here.
std::optional<std::string_view> Take(std::string_view end, std::string_view* rest) {
  const size_t at = rest->find(end);
  if (at == rest->npos) return std::nullopt;
  const std::string_view text = rest->substr(0, at);
  rest->remove_prefix(at + end.size());
  return text;
}

// The pieces of a chunked body together; nothing: it is cut.
std::optional<std::string> TakeChunks(std::string_view* rest) {
  std::string body;
  while (true) {
    const auto line = Take("\r\n", rest);
    uint64_t size = 0;
    if (!line) return std::nullopt;
    BATON_CHECK(absl::SimpleHexAtoi(absl::string_view(line->data(), line->size()), &size));
    if (rest->size() < size + 2) return std::nullopt;
    body += rest->substr(0, size);
    BATON_CHECK(rest->substr(size, 2) == "\r\n");
    rest->remove_prefix(size + 2);
    if (size == 0) return body;
  }
}

// Reads one answer; false: it is cut.
bool TakeAnswer(const Expected& expected, std::string_view* rest) {
  const auto head = Take("\r\n\r\n", rest);
  if (!head) return false;
  BATON_CHECK(head->starts_with("HTTP/1.") && head->size() > 12);
  if (expected.is_head) return true;
  std::string body;
  if (const size_t at = head->find("Content-Length: "); at != head->npos) {
    uint64_t size = 0;
    const std::string digits(head->substr(at + 16, head->find('\r', at) - at - 16));
    BATON_CHECK(absl::SimpleAtoi(digits, &size));
    if (rest->size() < size) return false;
    body = rest->substr(0, size);
    rest->remove_prefix(size);
  } else if (head->find("Transfer-Encoding: chunked") != head->npos) {
    auto chunks = TakeChunks(rest);
    if (!chunks) return false;
    body = *std::move(chunks);
  } else {
    BATON_CHECK(expected.is_http_1_0 && expected.is_stream);  // its end is the connection's
    body = std::exchange(*rest, {});
    if (body.size() < expected.mark.size()) return false;
  }
  BATON_CHECK(body.starts_with(expected.mark));
  return true;
}

// Checks that the client has read the expected answers, in order; the last may be cut.
void CheckAnswers(std::string_view read, std::deque<Expected>& expected) {
  while (!read.empty()) {
    while (read.starts_with("HTTP/1.1 100 ")) Take("\r\n\r\n", &read);
    if (read.empty()) return;
    BATON_CHECK(!expected.empty());
    if (!TakeAnswer(expected.front(), &read)) return;
    expected.pop_front();
  }
}

// A server behind a Unix socket, and one client of it at a time.
class Rig {
 public:
  explicit Rig(const HttpLimits& limits) {
    std::signal(SIGPIPE, SIG_IGN);
    HttpServerOptions options;
    options.port = -1;
    options.uds = folder_.file("socket");
    options.limits = limits;
    options.max_unsent = 100'000;
    auto started = HttpServer::Start(&loop_, options, &handler_);
    BATON_CHECK(started.ok());
    server_ = *std::move(started);
    address_.sun_family = AF_UNIX;
    BATON_CHECK(options.uds.size() < sizeof(address_.sun_path));
    options.uds.copy(address_.sun_path, sizeof(address_.sun_path) - 1);
  }

  // reads_all: the client reads to the end of all answers, and does not go away before.
  void Try(FuzzInput& input, bool reads_all) {
    handler_.Begin(server_.get());
    client_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    BATON_CHECK(
        ::connect(client_, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)) == 0);
    std::string read;
    for (int n = 0; n < 64; ++n) {
      const size_t act = input.Below(kActs);
      const std::string_view bytes = act == kSend ? input.Upto(kEnd) : std::string_view();
      if (act == kSend && bytes.empty()) break;  // the input has ended
      if (act == kSend) Send(bytes);
      if (act == kRead) Read(&read);
      if (act == kHalfClose) ::shutdown(client_, SHUT_WR);
      handler_.Act(act);
      Turn();
    }
    End(reads_all, &read);
    CheckAnswers(read, handler_.expected());
  }

 private:
  void Turn() {
    while (loop_.context().poll() > 0) {
    }
  }
  void Send(std::string_view bytes) {  // as much as the server has room for
    ssize_t n = 0;
    while (!bytes.empty() && (n = ::send(client_, bytes.data(), bytes.size(), MSG_NOSIGNAL)) > 0)
      bytes.remove_prefix(static_cast<size_t>(n));
  }
  // False: the server has closed.
  bool Read(std::string* read) {
    static char buffer[1 << 16];
    ssize_t n = 0;
    while ((n = ::read(client_, buffer, sizeof(buffer))) > 0)
      read->append(buffer, static_cast<size_t>(n));
    return n < 0 && errno == EAGAIN;
  }
  // Answers what is open and reads all of it, or goes away at once; then nothing is left.
  void End(bool reads_all, std::string* read) {
    for (int n = 0; reads_all && n < 100 && Read(read); ++n) {
      handler_.Finish();
      Turn();
    }
    ::close(client_);
    for (int n = 0; server_->n_connections() > 0; ++n) {
      BATON_CHECK(n < 1000);  // a connection is left whose client has gone
      Turn();
    }
    BATON_CHECK(handler_.idle());
  }

  ScratchFolder folder_;
  EventLoop loop_;
  Handler handler_;
  std::unique_ptr<HttpServer> server_;
  sockaddr_un address_{};
  int client_ = -1;
};

}  // namespace

void TryInput(std::string_view bytes) {
  static Rig usual{HttpLimits{}};
  static Rig small{HttpLimits{
      .max_header = 600, .max_fields = 6, .max_line = 200, .max_target = 60, .max_body = 300}};
  FuzzInput input(bytes);
  const uint8_t options = input.Byte();
  ((options & 1) != 0 ? small : usual).Try(input, (options & 2) != 0);
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  const auto send = [](const std::string& bytes) { return char{kSend} + bytes + kEnd; };
  const std::string get = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
                    post = "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
                    old = "GET /c HTTP/1.0\r\n\r\n", head = "HEAD /d HTTP/1.1\r\nHost: a\r\n\r\n",
                    none = "POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
                    chunked =
                        "POST /e HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: "
                        "100-continue\r\n\r\n";
  const std::string stream = {kStream, kWrite, kRead, kWriteMuch, kWrite, kEndStream, kRead};
  const std::string reply = {kReply, kRead}, last = {kLastReply, kRead};
  std::vector<std::string> talks = {
      send(get) + reply + send(post) + stream + send(head) + reply,
      send(get + get + post + head + old) + char{kReply} + char{kReply} + stream + reply + stream,
      send(get.substr(0, 9)) + send(get.substr(9)) + last + send(get),
      send(chunked) + char{kRead} + send("3\r\nabc\r\n") + send("0\r\n\r\n") + stream,
      send(none) + char{kRead} + send("xyz"),
      send(none.substr(0, none.find("Content"))) + send("\r\n" + get) + reply,
      send(old) + stream,
      send(get) + char{kHalfClose} + reply,
      send(post + get) + char{kReply} + char{kHalfClose} + reply,
      send(get) + char{kStream} + char{kWriteMuch} + char{kWriteMuch} + char{kWriteMuch},
      send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
      send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + get) + reply};
  for (const std::string& talk : talks)
    for (const char options : {'\0', '\1', '\2', '\3'}) seeds.inputs.push_back(options + talk);
  for (const std::string& word :
       {get, post, old, head, none, chunked, reply, stream, std::string{kEnd, kSend},
        std::string("\r\n"), std::string("Connection: keep-alive\r\n"),
        std::string("Content-Length: 99999999\r\n"), std::string("0\r\n\r\n")})
    if (word.size() < 64) seeds.words.push_back(word);
  return seeds;
}

}  // namespace baton
