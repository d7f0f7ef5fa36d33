#include "kvtransfer/mem_link.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {

// ---- network ----

MemNetwork::MemNetwork(Mode mode, uint64_t seed) : mode_(mode), random_(seed) {}

MemNetwork::~MemNetwork() { CHECK(links_.empty()); }

std::unique_ptr<MemLink> MemNetwork::MakeLink() {
  std::lock_guard lock(mutex_);
  const std::string address = absl::StrCat("mem:", next_id_++);
  std::unique_ptr<MemLink> link(new MemLink(this, address));
  links_[address] = link.get();
  return link;
}

MemNetwork::Wire* MemNetwork::FindWire(const MemLink* link, ConnectionId id, int* side) {
  for (const auto& wire : wires_) {
    for (int s = 0; s < 2; ++s) {
      if (!wire->open || wire->ends[s].link != link || wire->ends[s].id != id) continue;
      *side = s;
      return wire.get();
    }
  }
  return nullptr;
}

bool MemNetwork::Chance(double probability) {
  return probability > 0 && std::uniform_real_distribution<>()(random_) < probability;
}

bool MemNetwork::frozen(const MemLink* link) const {
  return std::find(frozen_.begin(), frozen_.end(), link) != frozen_.end();
}

bool MemNetwork::Step() {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<Wire*, int>> deliverable;
  for (const auto& wire : wires_)
    for (int side = 0; side < 2; ++side)
      if (wire->open && !wire->to[side].empty() && !frozen(wire->ends[side].link) &&
          !frozen(wire->ends[1 - side].link))
        deliverable.emplace_back(wire.get(), side);
  std::vector<size_t> movable;
  for (size_t i = 0; i < copies_.size(); ++i)
    if (!frozen(copies_[i].receiver) && !frozen(copies_[i].offer.sender)) movable.push_back(i);
  const size_t n = deliverable.size() + movable.size();
  if (n == 0) return false;
  const size_t pick = random_() % n;
  if (pick >= deliverable.size()) {
    const size_t at = movable[pick - deliverable.size()];
    const Copy copy = copies_[at];
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(at));
    Finish(copy, true);
    return true;
  }
  const auto [wire, side] = deliverable[pick];
  if (Chance(faults_.cut_connection)) {
    Close(wire, 2, absl::UnavailableError("connection cut"));
  } else {
    Deliver(wire, side);
  }
  return true;
}

void MemNetwork::Deliver(Wire* wire, int side) {
  LinkEvent event = std::move(wire->to[side].front());
  wire->to[side].pop_front();
  if (std::holds_alternative<MessageArrived>(event) && Chance(faults_.duplicate_message))
    wire->ends[side].link->Put(event);
  wire->ends[side].link->Put(std::move(event));
}

void MemNetwork::DeliverAllIfThreaded() {
  if (mode_ != Mode::kThreaded) return;
  for (const auto& wire : wires_)
    for (int side = 0; side < 2; ++side)
      while (wire->open && !wire->to[side].empty()) Deliver(wire.get(), side);
  for (const Copy& copy : std::exchange(copies_, {})) Finish(copy, true);
}

void MemNetwork::Finish(const Copy& copy, bool ok) {
  // A connection that fails under a chunk leaves any part of it behind.
  const uint64_t n_bytes = ok ? copy.offer.length : random_() % (copy.offer.length + 1);
  std::memcpy(copy.destination, copy.offer.payload, n_bytes);
  if (ok && copy.offer.length > 0 && Chance(faults_.corrupt_payload))
    copy.destination[random_() % copy.offer.length] ^= std::byte{1} << (random_() % 8);
  copy.receiver->Put(ChunkLanded{copy.operation, ok});
  --copy.receiver->n_operations_;
  copy.offer.sender->Put(ChunkSent{copy.offer.operation});
  --copy.offer.sender->n_operations_;
}

// told_side: 0 or 1 closes, so only the other end hears of it; 2: both do.
void MemNetwork::Close(Wire* wire, int closing_side, const absl::Status& status) {
  wire->open = false;
  for (int side = 0; side < 2; ++side) {
    if (side != closing_side)
      wire->ends[side].link->Put(ConnectionLost{wire->ends[side].id, status});
    for (const auto& [id, offer] : wire->offers[side]) {
      offer.sender->Put(ChunkSent{offer.operation});
      --offer.sender->n_operations_;
    }
    wire->offers[side].clear();
    wire->to[side].clear();
  }
  std::vector<Copy> mine;
  std::erase_if(copies_, [&](const Copy& copy) {
    if (copy.wire == wire) mine.push_back(copy);
    return copy.wire == wire;
  });
  for (const Copy& copy : mine) Finish(copy, false);
}

void MemNetwork::Freeze(const MemLink* link) {
  std::lock_guard lock(mutex_);
  frozen_.push_back(link);
}

void MemNetwork::Cut(MemLink* link, ConnectionId connection) {
  std::lock_guard lock(mutex_);
  int side;
  if (Wire* wire = FindWire(link, connection, &side))
    Close(wire, 2, absl::UnavailableError("connection cut"));
}

// ---- one link ----

MemLink::MemLink(MemNetwork* network, std::string address)
    : network_(network),
      address_(std::move(address)),
      wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK(wake_fd_ >= 0);
}

MemLink::~MemLink() {
  std::lock_guard lock(network_->mutex_);
  for (const auto& wire : network_->wires_) {
    for (int side = 0; side < 2; ++side) {
      if (wire->open && wire->ends[side].link == this)
        network_->Close(wire.get(), side, absl::UnavailableError("the peer is gone"));
    }
  }
  network_->links_.erase(address_);
  std::erase(network_->frozen_, this);
  ::close(wake_fd_);
}

void MemLink::Put(LinkEvent event) {
  if (inbox_.empty()) {
    const uint64_t one = 1;
    CHECK(::write(wake_fd_, &one, sizeof(one)) == sizeof(one));
  }
  inbox_.push_back(std::move(event));
}

ConnectionId MemLink::Connect(const std::string& address) {
  std::lock_guard lock(network_->mutex_);
  const ConnectionId id = network_->next_id_++;
  const auto it = network_->links_.find(address);
  if (it == network_->links_.end()) {
    Put(ConnectionLost{id, absl::UnavailableError(absl::StrCat("nobody listens at ", address))});
    return id;
  }
  auto wire = std::make_unique<MemNetwork::Wire>();
  wire->ends[0] = {this, id};
  wire->ends[1] = {it->second, network_->next_id_++};
  wire->to[1].push_back(ConnectionAccepted{wire->ends[1].id});
  network_->wires_.push_back(std::move(wire));
  network_->DeliverAllIfThreaded();
  return id;
}

void MemLink::Send(ConnectionId connection, std::string message) {
  std::lock_guard lock(network_->mutex_);
  int side;
  MemNetwork::Wire* wire = network_->FindWire(this, connection, &side);
  if (wire == nullptr) return;
  wire->to[1 - side].push_back(MessageArrived{wire->ends[1 - side].id, std::move(message)});
  network_->DeliverAllIfThreaded();
}

void MemLink::Announce(ConnectionId connection, OperationId operation,
                       const wire::ChunkHeaderBytes& header, const std::byte* payload,
                       uint64_t length) {
  std::lock_guard lock(network_->mutex_);
  int side;
  MemNetwork::Wire* wire = network_->FindWire(this, connection, &side);
  if (wire == nullptr) return Put(ChunkSent{operation});
  ++n_operations_;
  const AnnouncementId id = network_->next_id_++;
  wire->offers[1 - side][id] = {this, operation, payload, length};
  wire->to[1 - side].push_back(ChunkAnnounced{.connection = wire->ends[1 - side].id,
                                              .announcement = id,
                                              .header = std::string(header.begin(), header.end()),
                                              .length = length});
  network_->DeliverAllIfThreaded();
}

void MemLink::Accept(AnnouncementId announcement, OperationId operation, std::byte* destination) {
  std::lock_guard lock(network_->mutex_);
  for (const auto& wire : network_->wires_) {
    for (int side = 0; side < 2; ++side) {
      const auto it = wire->offers[side].find(announcement);
      if (it == wire->offers[side].end()) continue;
      CHECK(wire->ends[side].link == this);
      ++n_operations_;
      network_->copies_.push_back({wire.get(), it->second, this, operation, destination});
      wire->offers[side].erase(it);
      return network_->DeliverAllIfThreaded();
    }
  }
  Put(ChunkLanded{operation, false});  // it went with its connection
}

void MemLink::Refuse(AnnouncementId announcement) {
  std::lock_guard lock(network_->mutex_);
  for (const auto& wire : network_->wires_) {
    for (int side = 0; side < 2; ++side) {
      const auto it = wire->offers[side].find(announcement);
      if (it == wire->offers[side].end()) continue;
      it->second.sender->Put(ChunkSent{it->second.operation});
      --it->second.sender->n_operations_;
      wire->offers[side].erase(it);
      return;
    }
  }
}

void MemLink::Close(ConnectionId connection) {
  std::lock_guard lock(network_->mutex_);
  int side;
  if (MemNetwork::Wire* wire = network_->FindWire(this, connection, &side))
    network_->Close(wire, side, absl::UnavailableError("the peer closed the connection"));
}

bool MemLink::Poll(std::vector<LinkEvent>* events) {
  std::lock_guard lock(network_->mutex_);
  if (inbox_.empty()) return false;
  uint64_t count;
  CHECK(::read(wake_fd_, &count, sizeof(count)) == sizeof(count));
  for (LinkEvent& event : inbox_) events->push_back(std::move(event));
  inbox_.clear();
  return true;
}

bool MemLink::Arm() {
  std::lock_guard lock(network_->mutex_);
  return inbox_.empty();
}

bool MemLink::idle() const {
  std::lock_guard lock(network_->mutex_);
  return n_operations_ == 0;
}

}  // namespace baton
