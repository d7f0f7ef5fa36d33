// Forwards TCP connections from one address to another, with its ends in chosen network namespaces.
// Control streams are plain text and stay on the loopback, so in a network lab a pair of relays
// carries them across the wire: loopback of the worker's host -> bridge -> loopback of the router.
// Cut links then cut control streams too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/load/http_client.h"
#include "common/status.h"

namespace baton {

class TcpRelay {
 public:
  // Listens on `host` and a free port, and dials `target` for each connection, both inside the
  // namespace (a name of `ip netns`; empty: the current one). Starts one thread, and two per
  // connection.
  static absl::StatusOr<std::unique_ptr<TcpRelay>> Start(const std::string& name_space,
                                                         const std::string& host, HttpUrl target);
  ~TcpRelay();  // ends all connections

  int port() const { return port_; }
  // While held, connections stay open and new ones are accepted, but neither bytes nor the end of a
  // side are forwarded.
  void Hold(bool held);
  // Bytes forwarded so far from those who connected to the relay to its target.
  int64_t n_forwarded() const { return n_forwarded_; }

 private:
  TcpRelay() = default;
  absl::Status Listen(const std::string& name_space, const std::string& host);
  void Accept(HttpUrl target);
  void Carry(int from, int to, std::atomic<int64_t>* n_bytes);  // null: not counted
  int Dial(const HttpUrl& target);

  int listener_ = -1, port_ = 0;
  std::atomic<int64_t> n_forwarded_ = 0;
  std::thread acceptor_;
  std::mutex mutex_;  // guards the members below
  bool closing_ = false, held_ = false;
  std::condition_variable flows_;  // no longer held, or closing
  std::vector<int> sockets_;
  std::vector<std::thread> carriers_;
};

}  // namespace baton
