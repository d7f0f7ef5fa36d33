#include "tests/e2e/attacks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace baton {
namespace {

constexpr char kAttacker[] = "127.0.0.9";  // others come from 127.0.0.1

// A connection that never waits: it sends what the server takes, and reads only when asked to.
class Attacker {
 public:
  explicit Attacker(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int small = 4096;
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    sockaddr_in from{}, to{};
    from.sin_family = to.sin_family = AF_INET;
    ::inet_pton(AF_INET, kAttacker, &from.sin_addr);
    // One port of the attacker for each connection of its own, chosen when it connects.
    const int late = 1;
    ::setsockopt(socket_, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &late, sizeof late);
    ::bind(socket_, reinterpret_cast<sockaddr*>(&from), sizeof from);
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_open_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    ::fcntl(socket_, F_SETFL, O_NONBLOCK);
  }
  ~Attacker() { ::close(socket_); }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

  // Sends as much of the bytes as is taken now, from `sent` on. False: the server has closed.
  bool SendMore(std::string_view bytes) {
    while (is_open_ && sent_ < bytes.size()) {
      const ssize_t n = ::send(socket_, bytes.data() + sent_, bytes.size() - sent_, MSG_NOSIGNAL);
      if (n > 0) {
        sent_ += static_cast<size_t>(n);
      } else if (errno == EAGAIN) {
        break;
      } else {
        is_open_ = false;
      }
    }
    return is_open_;
  }
  bool has_sent(std::string_view bytes) const { return sent_ >= bytes.size(); }
  void Begin() { sent_ = 0; }  // the next SendMore sends from the start
  // Reads what has come. False: the server has closed.
  bool Read() {
    char chunk[16384];
    ssize_t n = 0;
    while ((n = ::recv(socket_, chunk, sizeof chunk, 0)) > 0) {
    }
    is_open_ = is_open_ && n < 0 && errno == EAGAIN;
    return is_open_;
  }

 private:
  int socket_;
  bool is_open_;
  size_t sent_ = 0;
};

void Pause(absl::Duration pause, const std::atomic<bool>& over) {
  for (const absl::Time end = absl::Now() + pause; !over && absl::Now() < end;)
    absl::SleepFor(std::min(pause, absl::Milliseconds(50)));
}

// Keeps n connections, each of which is moved on by `step` now and then, and made anew when step
// says that it has ended.
template <typename Step>
void Hold(int port, int n, absl::Duration pause, const std::atomic<bool>& over, Step step) {
  std::vector<std::unique_ptr<Attacker>> held(static_cast<size_t>(n));
  while (!over) {
    for (auto& attacker : held) {
      if (over) return;
      if (attacker == nullptr) attacker = std::make_unique<Attacker>(port);
      if (!step(attacker.get())) attacker.reset();
    }
    Pause(pause, over);
  }
}

// Idle connections, each of which had a page of 100 kB and more.
void Idle(const AttackTarget& target, const std::atomic<bool>& over) {
  const std::string request = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
  Hold(target.port, 4000 / target.scale, absl::Seconds(1), over,
       [&](Attacker* attacker) { return attacker->SendMore(request) && attacker->Read(); });
}

void HalfHeaders(const AttackTarget& target, const std::atomic<bool>& over) {
  const std::string request =
      "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nA: " + std::string(7'000, 'a') +
      "\r\nB: " + std::string(7'000, 'b');
  Hold(target.port, 4000 / target.scale, absl::Seconds(1), over,
       [&](Attacker* attacker) { return attacker->SendMore(request) && attacker->Read(); });
}

void SlowBodies(const AttackTarget& target, const std::atomic<bool>& over) {
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 8000000\r\n\r\n" +
      std::string(7'000'000, ' ');
  Hold(target.port, 20, absl::Milliseconds(200), over,
       [&](Attacker* attacker) { return attacker->SendMore(request) && attacker->Read(); });
}

// 10,000 requests on each of some connections, and not one answer read.
void SentAhead(const AttackTarget& target, const std::atomic<bool>& over) {
  std::string requests;
  for (int i = 0; i < 10'000 / target.scale; ++i)
    requests += "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::vector<std::thread> threads;
  std::vector<int> ports(1, target.port);
  ports.insert(ports.end(), target.worker_ports.begin(), target.worker_ports.end());
  for (const int port : ports)
    threads.emplace_back([&, port] {
      Hold(port, 8, absl::Milliseconds(20), over,
           [&](Attacker* attacker) { return attacker->SendMore(requests); });
    });
  for (std::thread& thread : threads) thread.join();
}

// Answers of 100 kB and more, none of them read.
void Unread(const AttackTarget& target, const std::atomic<bool>& over) {
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
  Hold(target.port, 4000 / target.scale, absl::Milliseconds(500), over,
       [&](Attacker* attacker) { return attacker->SendMore(requests); });
}

// Connections that come and go, all that the attacker can open.
void ComeAndGo(const AttackTarget& target, const std::atomic<bool>& over) {
  while (!over) {
    std::vector<std::unique_ptr<Attacker>> some;
    for (int i = 0; i < 400 / target.scale && !over; ++i)
      some.push_back(std::make_unique<Attacker>(target.port));
    Pause(absl::Milliseconds(200), over);
  }
}

}  // namespace

std::span<const Attack> AllAttacks() {
  static constexpr Attack kAttacks[] = {
      {"idle", "4,000 connections that had a large page and wait", Idle},
      {"headers", "4,000 connections with 14 kB of a header that does not end", HalfHeaders},
      {"bodies", "20 bodies of 7 of 8 MB that do not end", SlowBodies},
      {"ahead", "10,000 requests sent ahead on each of 8 connections, unread", SentAhead},
      {"unread", "4,000 connections that ask for large pages and read none", Unread},
      {"churn", "2,000 connections a second that come and go", ComeAndGo},
  };
  return kAttacks;
}

}  // namespace baton
