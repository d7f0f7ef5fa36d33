#include "tests/e2e/bare_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

struct Client {
  size_t n_owed = 0;      // bytes of pages
  uint32_t end_seen = 0;  // how many bytes of "\r\n\r\n" came last
};

class BareServer {
 public:
  BareServer(int listener, size_t page_bytes)
      : listener_(listener), epoll_(::epoll_create1(EPOLL_CLOEXEC)), page_(Page(page_bytes)) {
    Watch(listener_);
  }

  [[noreturn]] void Run() {
    for (;;) {
      epoll_event events[128];
      const int n = ::epoll_wait(epoll_, events, 128, -1);
      for (int i = 0; i < n; ++i) {
        if (events[i].data.fd == listener_) {
          Accept();
        } else {
          Serve(events[i].data.fd);
        }
      }
    }
  }

 private:
  static std::string Page(size_t n) {
    return absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", n, "\r\n\r\n", std::string(n, 'x'));
  }
  void Watch(int socket) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.fd = socket;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event);
  }
  void Accept() {
    int socket = 0;
    while ((socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
      clients_[socket] = {};
      Watch(socket);
    }
  }
  // Writes what is owed, and reads on when all of it is written.
  void Serve(int socket) {
    Client& client = clients_[socket];
    for (;;) {
      while (client.n_owed > 0) {
        const size_t left = (client.n_owed - 1) % page_.size() + 1;  // of the page under way
        const ssize_t n = ::send(socket, page_.data() + (page_.size() - left), left, MSG_NOSIGNAL);
        if (n < 0) return EndUnlessBusy(socket);
        client.n_owed -= static_cast<size_t>(n);
      }
      const ssize_t n = ::recv(socket, chunk_, sizeof chunk_, 0);
      if (n == 0) return End(socket);
      if (n < 0) return EndUnlessBusy(socket);
      client.n_owed = CountRequests({chunk_, static_cast<size_t>(n)}, &client) * page_.size();
    }
  }
  static size_t CountRequests(std::string_view bytes, Client* client) {
    constexpr std::string_view kEnd = "\r\n\r\n";
    size_t n = 0;
    for (const char c : bytes) {
      client->end_seen = c == kEnd[client->end_seen] ? client->end_seen + 1 : c == '\r' ? 1 : 0;
      if (client->end_seen < kEnd.size()) continue;
      client->end_seen = 0;
      ++n;
    }
    return n;
  }
  void EndUnlessBusy(int socket) {
    if (errno != EAGAIN) End(socket);
  }
  void End(int socket) {
    clients_.erase(socket);
    ::close(socket);
  }

  const int listener_, epoll_;
  const std::string page_;
  absl::flat_hash_map<int, Client> clients_;
  char chunk_[65536];
};

}  // namespace

int ServeBare(size_t page_bytes) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener, SOMAXCONN) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::perror("the control cannot listen");
    return 1;
  }
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  BareServer(listener, page_bytes).Run();
}

}  // namespace baton
