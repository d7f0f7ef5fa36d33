// A worker's control streams to all routers of its cluster: a ControlClient for each address. Names
// among the addresses are resolved again and again, so routers that come are dialled within two
// seconds (within ten at an address of one that has a stream), and those whose address is gone are
// dialled no more once their stream has ended. A router that has several addresses has one stream.
//
// Threads: those of the clients, and one that resolves names where there are any.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/router_id.h"
#include "common/status.h"
#include "proto/control_client.h"
#include "proto/router_addresses.h"

namespace baton {

struct RouterStreamsOptions {
  std::vector<std::string> addresses;  // of ParseRouterAddresses
  ControlClientOptions client;         // of each, but for address, may_join and left
  // Asked for the addresses of a name.
  std::function<absl::StatusOr<std::vector<std::string>>(const std::string&)> resolve =
      ResolveAddress;
  absl::Duration resolve_interval = absl::Seconds(1);
};

class RouterStreams {
 public:
  static constexpr size_t kMaxRouters = 64;  // further addresses are left out, and the log says so

  // Starts dialling and returns at once, as ControlClient does.
  explicit RouterStreams(RouterStreamsOptions options);
  // Ends all streams and joins all threads; a name server that does not answer may hold it up.
  ~RouterStreams();
  RouterStreams(const RouterStreams&) = delete;
  RouterStreams& operator=(const RouterStreams&) = delete;

  // Any thread; never blocks. `stream` is RouterConnected's. False: it has ended, and the report is
  // dropped.
  bool Send(uint64_t stream, const WorkerReport& report);

 private:
  void Resolve();
  std::vector<std::string> Addresses();  // all of now
  void Dial(const std::vector<std::string>& addresses);
  absl::Status Join(RouterId router, const std::string& address);
  void Leave(RouterId router);

  const RouterStreamsOptions options_;
  std::map<std::string, std::vector<std::string>> resolved_;  // by name, the last good answer
  std::map<std::string, absl::Status> last_errors_;           // by name, logged once
  bool left_out_ = false;                                     // was logged

  std::mutex joined_mutex_;  // taken while a client's is not held
  std::map<RouterId, std::string> joined_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::map<std::string, std::unique_ptr<ControlClient>> clients_;  // by address
  std::thread resolver_;  // last member: starts when all others exist
};

}  // namespace baton
