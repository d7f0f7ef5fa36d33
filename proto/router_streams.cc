#include "proto/router_streams.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "proto/router_addresses.h"

namespace baton {

RouterStreams::RouterStreams(RouterStreamsOptions options) : options_(std::move(options)) {
  // Dials numbers first, because a name server may hang.
  std::vector<std::string> numbers = options_.addresses;
  std::erase_if(numbers, IsNamedAddress);
  Dial(numbers);
  if (numbers.size() < options_.addresses.size()) resolver_ = std::thread([this] { Resolve(); });
}

RouterStreams::~RouterStreams() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (resolver_.joinable()) resolver_.join();
}

void RouterStreams::Resolve() {
  bool is_over = false;
  while (!is_over) {
    Dial(Addresses());
    std::unique_lock lock(mutex_);
    is_over = changed_.wait_for(lock, absl::ToChronoNanoseconds(options_.resolve_interval),
                                [this] { return stopping_; });
  }
}

// A name that cannot be resolved now keeps the addresses that it had.
std::vector<std::string> RouterStreams::Addresses() {
  std::vector<std::string> addresses;
  for (const std::string& address : options_.addresses) {
    if (!IsNamedAddress(address)) {
      addresses.push_back(address);
      continue;
    }
    auto found = options_.resolve(address);
    absl::Status& last = last_errors_[address];
    if (!found.ok() && found.status() != last)
      LogWarn("waiting for routers: %s", std::string(found.status().message()));
    last = found.status();
    if (found.ok()) resolved_[address] = *std::move(found);
    const std::vector<std::string>& known = resolved_[address];
    addresses.insert(addresses.end(), known.begin(), known.end());
  }
  return addresses;
}

void RouterStreams::Dial(const std::vector<std::string>& addresses) {
  std::vector<std::unique_ptr<ControlClient>> over;  // ended without the lock
  std::lock_guard lock(mutex_);
  for (auto at = clients_.begin(); at != clients_.end();) {
    const auto [address, client] = std::pair(at->first, at->second.get());
    if (client->IsOver()) {
      over.push_back(std::move(at->second));
      at = clients_.erase(at);
      continue;
    }
    client->SetWanted(std::find(addresses.begin(), addresses.end(), address) != addresses.end());
    ++at;
  }
  for (const std::string& address : addresses) {
    if (clients_.contains(address)) continue;
    if (clients_.size() >= kMaxRouters) {
      if (!std::exchange(left_out_, true))
        LogWarn("cluster.router has more than %d addresses: %s and others are not dialled",
                static_cast<int>(kMaxRouters), address);
      return;
    }
    ControlClientOptions client = options_.client;
    client.router_address = address;
    client.may_join = [this, address](RouterId router) { return Join(router, address); };
    client.left = [this](RouterId router) { Leave(router); };
    clients_.emplace(address, std::make_unique<ControlClient>(std::move(client)));
  }
}

absl::Status RouterStreams::Join(RouterId router, const std::string& address) {
  std::lock_guard lock(joined_mutex_);
  const auto [at, is_new] = joined_.try_emplace(router, address);
  if (is_new) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("its router is connected by ", at->second));
}

void RouterStreams::Leave(RouterId router) {
  std::lock_guard lock(joined_mutex_);
  joined_.erase(router);
}

bool RouterStreams::Send(uint64_t stream, const WorkerReport& report) {
  std::lock_guard lock(mutex_);
  return std::any_of(clients_.begin(), clients_.end(),
                     [&](const auto& client) { return client.second->Send(stream, report); });
}

}  // namespace baton
