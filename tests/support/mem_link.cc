#include "tests/support/mem_link.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/unit_interval.h"

namespace baton {

// ---- network ----

MemNetwork::MemNetwork(Mode mode, uint64_t seed) : mode_(mode), random_(seed) {}

MemNetwork::~MemNetwork() { BATON_CHECK(links_.empty()); }

std::unique_ptr<MemLink> MemNetwork::MakeLink(std::function<void()> wake, std::string address) {
  std::lock_guard lock(mutex_);
  const int wake_fd = mode_ == Mode::kThreaded ? ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
  BATON_CHECK(mode_ == Mode::kDeterministic || wake_fd >= 0);
  if (address.empty()) address = absl::StrCat("mem:", next_id_++);
  BATON_CHECK(!links_.contains(address));
  std::unique_ptr<MemLink> link(new MemLink(this, address, std::move(wake), wake_fd));
  links_[address] = link.get();
  return link;
}

MemNetwork::Wire* MemNetwork::FindWire(const MemLink* link, ConnectionId id, int* side) {
  for (const auto& wire : wires_) {
    for (int s = 0; s < 2; ++s) {
      if (!wire->ends[s].open || wire->ends[s].link != link || wire->ends[s].id != id) continue;
      *side = s;
      return wire.get();
    }
  }
  return nullptr;
}

MemNetwork::Wire* MemNetwork::FindOffer(const MemLink* link, AnnouncementId id, int* side) {
  for (const auto& wire : wires_) {
    for (int s = 0; s < 2; ++s) {
      if (!wire->ends[s].open || wire->ends[s].link != link || !wire->offers[s].contains(id))
        continue;
      *side = s;
      return wire.get();
    }
  }
  return nullptr;
}

bool MemNetwork::Chance(double probability) {
  return probability > 0 && InUnitInterval(random_()) < probability;
}

bool MemNetwork::Passes(const MemLink* from, const MemLink* to) const {
  const auto frozen = [this](const MemLink* link) {
    return std::find(frozen_.begin(), frozen_.end(), link) != frozen_.end();
  };
  return !frozen(from) && !frozen(to) && (blocked_.empty() || !blocked_.contains({from, to}));
}

bool MemNetwork::CanDeliver(const Wire& wire, int side) const {
  return !wire.to[side].empty() && Passes(wire.ends[1 - side].link, wire.ends[side].link);
}

bool MemNetwork::CanFinish(const Copy& copy) const {
  return copy.receiver != nullptr && copy.offer.sender != nullptr &&
         Passes(copy.offer.sender, copy.receiver);
}

int64_t MemNetwork::DueUs(const Wire& wire, int to_side) {
  if (!delay_) return now_us_;
  return now_us_ + delay_(wire.ends[1 - to_side].link, wire.ends[to_side].link);
}

void MemNetwork::Send(Wire* wire, int to_side, LinkEvent event) {
  std::deque<Parcel>& queue = wire->to[to_side];
  int64_t due_us = DueUs(*wire, to_side);
  if (!queue.empty()) due_us = std::max(due_us, queue.back().due_us);
  queue.push_back({due_us, std::move(event)});
}

bool MemNetwork::Step() {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<Wire*, int>> deliverable;
  for (const auto& wire : wires_)
    for (int side = 0; side < 2; ++side)
      if (CanDeliver(*wire, side)) deliverable.emplace_back(wire.get(), side);
  std::vector<size_t> movable;
  for (size_t i = 0; i < copies_.size(); ++i)
    if (CanFinish(copies_[i])) movable.push_back(i);
  std::vector<size_t> late;
  for (size_t i = 0; i < stragglers_.size(); ++i)
    if (Passes(stragglers_[i].receiver, stragglers_[i].receiver)) late.push_back(i);
  const size_t n = deliverable.size() + movable.size() + late.size();
  if (n == 0) return false;
  size_t pick = random_() % n;
  if (pick < deliverable.size()) {
    DeliverFront(deliverable[pick].first, deliverable[pick].second);
  } else if ((pick -= deliverable.size()) < movable.size()) {
    FinishAt(movable[pick]);
  } else {
    FinishStraggler(late[pick - movable.size()]);
  }
  return true;
}

int64_t MemNetwork::NextDueUs() const {
  int64_t next_us = kNever;
  for (const auto& wire : wires_)
    for (int side = 0; side < 2; ++side)
      if (CanDeliver(*wire, side)) next_us = std::min(next_us, wire->to[side].front().due_us);
  for (const Copy& copy : copies_)
    if (CanFinish(copy)) next_us = std::min(next_us, copy.due_us);
  for (const Straggler& straggler : stragglers_)
    if (Passes(straggler.receiver, straggler.receiver))
      next_us = std::min(next_us, straggler.due_us);
  return next_us;
}

bool MemNetwork::Deliver(int64_t now_us) {
  std::lock_guard lock(mutex_);
  now_us_ = now_us;
  const int64_t due_us = NextDueUs();
  if (due_us > now_us) return false;
  for (const auto& wire : wires_) {
    for (int side = 0; side < 2; ++side) {
      if (!CanDeliver(*wire, side) || wire->to[side].front().due_us != due_us) continue;
      DeliverFront(wire.get(), side);
      return true;
    }
  }
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (!CanFinish(copies_[i]) || copies_[i].due_us != due_us) continue;
    FinishAt(i);
    return true;
  }
  for (size_t i = 0; i < stragglers_.size(); ++i) {
    const Straggler& straggler = stragglers_[i];
    if (straggler.due_us != due_us || !Passes(straggler.receiver, straggler.receiver)) continue;
    FinishStraggler(i);
    return true;
  }
  return false;
}

void MemNetwork::DeliverFront(Wire* wire, int side) {
  if (Chance(faults_.cut_connection))
    return CloseBoth(wire, absl::UnavailableError("connection cut"));
  LinkEvent event = std::move(wire->to[side].front().event);
  wire->to[side].pop_front();
  MemLink* const link = wire->ends[side].link;
  if (std::holds_alternative<ConnectionLost>(event)) EndSide(wire, side);
  if (std::holds_alternative<MessageArrived>(event) && Chance(faults_.duplicate_message))
    link->Put(event);
  link->Put(std::move(event));
}

void MemNetwork::DeliverAllIfThreaded() {
  if (mode_ != Mode::kThreaded) return;
  for (const auto& wire : wires_)
    for (int side = 0; side < 2; ++side)
      while (CanDeliver(*wire, side)) DeliverFront(wire.get(), side);
  while (!copies_.empty()) FinishAt(copies_.size() - 1);
}

void MemNetwork::FinishAt(size_t copy_index) {
  if (Chance(faults_.cut_connection))
    return CloseBoth(copies_[copy_index].wire, absl::UnavailableError("connection cut"));
  const Copy copy = copies_[copy_index];
  copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(copy_index));
  const Offer& offer = copy.offer;
  if (watch_.landing) watch_.landing(copy.receiver, copy.operation, copy.destination, offer.length);
  std::memcpy(copy.destination, offer.payload, offer.length);
  if (offer.length > 0 && Chance(faults_.corrupt_payload))
    copy.destination[random_() % offer.length] ^= std::byte{1} << (random_() % 8);
  copy.receiver->Report(ChunkLanded{copy.operation, true});
  offer.sender->Report(ChunkSent{offer.operation});
}

// A connection that fails during a chunk leaves any part of it, or all.
uint64_t MemNetwork::BytesLeft(const Copy& copy) {
  return Chance(faults_.late_landing) ? copy.offer.length : random_() % (copy.offer.length + 1);
}

void MemNetwork::BreakCopy(Copy* copy) {
  if (copy->receiver == nullptr || copy->offer.sender == nullptr) return;
  const uint64_t n_bytes = BytesLeft(*copy);
  if (watch_.landing) watch_.landing(copy->receiver, copy->operation, copy->destination, n_bytes);
  std::memcpy(copy->destination, copy->offer.payload, n_bytes);
  copy->whole = n_bytes == copy->offer.length;
}

void MemNetwork::AddStraggler(const Copy& copy) {
  Straggler straggler{.due_us = DueUs(*copy.wire, copy.receiving_side),
                      .receiver = copy.receiver,
                      .operation = copy.operation,
                      .destination = copy.destination,
                      .length = copy.offer.length,
                      .whole = copy.whole,
                      .bytes = {}};
  if (copy.offer.sender != nullptr) {  // else the landed part stays
    straggler.bytes = {copy.offer.payload, copy.offer.payload + BytesLeft(copy)};
    straggler.whole = straggler.bytes.size() == straggler.length;
  }
  stragglers_.push_back(std::move(straggler));
}

void MemNetwork::FinishStraggler(size_t index) {
  const Straggler straggler = std::move(stragglers_[index]);
  stragglers_.erase(stragglers_.begin() + static_cast<std::ptrdiff_t>(index));
  const uint64_t n_bytes = straggler.bytes.size();
  if (watch_.landing)
    watch_.landing(straggler.receiver, straggler.operation, straggler.destination, n_bytes);
  std::copy(straggler.bytes.begin(), straggler.bytes.end(), straggler.destination);  // may be empty
  straggler.receiver->Report(ChunkLanded{straggler.operation, straggler.whole});
}

// Returns whether a posted receive may write there.
bool MemNetwork::Shares(const MemLink* link, const std::byte* at, uint64_t n_bytes) const {
  const auto overlaps = [at, n_bytes](const std::byte* other, uint64_t n_other) {
    return at < other + n_other && other < at + n_bytes;
  };
  return std::any_of(copies_.begin(), copies_.end(),
                     [&](const Copy& copy) {
                       return copy.receiver == link &&
                              overlaps(copy.destination, copy.offer.length);
                     }) ||
         std::any_of(stragglers_.begin(), stragglers_.end(), [&](const Straggler& straggler) {
           return straggler.receiver == link && overlaps(straggler.destination, straggler.length);
         });
}

void MemNetwork::EndSide(Wire* wire, int side) {
  wire->ends[side].open = false;
  wire->to[side].clear();
  for (const auto& [id, offer] : wire->offers[1 - side])
    offer.sender->Report(ChunkSent{offer.operation});
  wire->offers[1 - side].clear();
  for (Copy& copy : copies_) {
    if (copy.wire != wire) continue;
    if (copy.receiving_side == side && copy.receiver != nullptr && Chance(faults_.late_landing)) {
      AddStraggler(copy);
      copy.receiver = nullptr;
    }
    BreakCopy(&copy);
    if (copy.receiving_side == side) {
      if (copy.receiver != nullptr) copy.receiver->Report(ChunkLanded{copy.operation, false});
      copy.receiver = nullptr;
    } else {
      if (copy.offer.sender != nullptr) copy.offer.sender->Report(ChunkSent{copy.offer.operation});
      copy.offer.sender = nullptr;
    }
  }
  std::erase_if(copies_, [](const Copy& copy) {
    return copy.receiver == nullptr && copy.offer.sender == nullptr;
  });
}

void MemNetwork::CloseSide(Wire* wire, int side, const absl::Status& status) {
  EndSide(wire, side);
  const End& other = wire->ends[1 - side];
  if (!other.open) return;
  // Messages under way may be lost, from the last on.
  std::deque<Parcel>& queue = wire->to[1 - side];
  const size_t n_kept = random_() % (queue.size() + 1);
  while (queue.size() > n_kept) queue.pop_back();
  Send(wire, 1 - side, ConnectionLost{other.id, status});
  DeliverAllIfThreaded();
}

void MemNetwork::CloseBoth(Wire* wire, const absl::Status& status) {
  const int first = static_cast<int>(random_() % 2);
  for (const int side : {first, 1 - first}) {
    if (!wire->ends[side].open) continue;
    EndSide(wire, side);
    wire->ends[side].link->Put(ConnectionLost{wire->ends[side].id, status});
  }
}

void MemNetwork::Freeze(const MemLink* link) {
  std::lock_guard lock(mutex_);
  frozen_.push_back(link);
}

void MemNetwork::Thaw(const MemLink* link) {
  std::lock_guard lock(mutex_);
  std::erase(frozen_, link);
}

void MemNetwork::Block(const MemLink* from, const MemLink* to) {
  std::lock_guard lock(mutex_);
  blocked_.insert({from, to});
}

void MemNetwork::Cut(MemLink* link, ConnectionId connection) {
  std::lock_guard lock(mutex_);
  int side;
  if (Wire* wire = FindWire(link, connection, &side))
    CloseBoth(wire, absl::UnavailableError("connection cut"));
}

bool MemNetwork::CutAny() {
  std::lock_guard lock(mutex_);
  std::vector<Wire*> open;
  for (const auto& wire : wires_)
    if (wire->ends[0].open && wire->ends[1].open) open.push_back(wire.get());
  if (open.empty()) return false;
  CloseBoth(open[random_() % open.size()], absl::UnavailableError("connection cut"));
  return true;
}

// ---- one link ----

MemLink::MemLink(MemNetwork* network, std::string address, std::function<void()> wake, int wake_fd)
    : network_(network), address_(std::move(address)), wake_(std::move(wake)), wake_fd_(wake_fd) {}

MemLink::~MemLink() {
  std::lock_guard lock(network_->mutex_);
  for (const auto& wire : network_->wires_) {
    for (int side = 0; side < 2; ++side) {
      if (wire->ends[side].link != this) continue;
      if (wire->ends[side].open)
        network_->CloseSide(wire.get(), side, absl::UnavailableError("the peer is gone"));
      wire->ends[side].link = nullptr;
    }
  }
  std::erase_if(network_->stragglers_,
                [this](const auto& straggler) { return straggler.receiver == this; });
  network_->links_.erase(address_);
  std::erase(network_->frozen_, this);
  std::erase_if(network_->blocked_,
                [this](const auto& pair) { return pair.first == this || pair.second == this; });
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

void MemLink::Put(LinkEvent event) {
  const bool was_empty = inbox_.empty();
  inbox_.push_back(std::move(event));
  if (!was_empty) return;
  if (wake_) wake_();
  if (wake_fd_ < 0) return;
  const uint64_t one = 1;
  BATON_CHECK(::write(wake_fd_, &one, sizeof(one)) == sizeof(one));
}

ConnectionId MemLink::Connect(const std::string& address) {
  std::lock_guard lock(network_->mutex_);
  std::erase_if(network_->wires_, [](const auto& wire) {  // erase connections that are over
    return !wire->ends[0].open && !wire->ends[1].open;
  });
  const ConnectionId id = network_->next_id_++;
  const auto it = network_->links_.find(address);
  if (it == network_->links_.end()) {
    Put(ConnectionLost{id, absl::UnavailableError(absl::StrCat("no listener at ", address))});
    return id;
  }
  auto wire = std::make_unique<MemNetwork::Wire>();
  wire->ends[0] = {this, id};
  wire->ends[1] = {it->second, network_->next_id_++};
  network_->Send(wire.get(), 1, ConnectionAccepted{wire->ends[1].id, address_});
  network_->wires_.push_back(std::move(wire));
  network_->DeliverAllIfThreaded();
  return id;
}

void MemLink::Send(ConnectionId connection, std::string message) {
  std::lock_guard lock(network_->mutex_);
  int side;
  MemNetwork::Wire* wire = network_->FindWire(this, connection, &side);
  if (wire == nullptr || !wire->ends[1 - side].open) return;
  if (network_->watch_.sent && wire->ends[1 - side].link != nullptr)
    network_->watch_.sent(wire->ends[1 - side].link, message);
  network_->Send(wire, 1 - side, MessageArrived{wire->ends[1 - side].id, std::move(message)});
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
  if (!wire->ends[1 - side].open) return;  // the operation ends when this end gets the loss event
  network_->Send(wire, 1 - side,
                 ChunkAnnounced{.connection = wire->ends[1 - side].id,
                                .announcement = id,
                                .header = std::string(header.begin(), header.end()),
                                .length = length});
  network_->DeliverAllIfThreaded();
}

void MemLink::Accept(AnnouncementId announcement, OperationId operation, std::byte* destination) {
  std::lock_guard lock(network_->mutex_);
  int side;
  MemNetwork::Wire* wire = network_->FindOffer(this, announcement, &side);
  if (wire == nullptr) return Put(ChunkLanded{operation, false});  // lost with its connection
  const MemNetwork::Offer offer = wire->offers[side].at(announcement);
  wire->offers[side].erase(announcement);
  BATON_CHECK(!network_->Shares(this, destination, offer.length));  // none may overlap
  ++n_operations_;
  if (network_->watch_.posted) network_->watch_.posted(this, operation, destination, offer.length);
  network_->copies_.push_back(
      {wire, side, network_->DueUs(*wire, side), offer, this, operation, destination});
  network_->DeliverAllIfThreaded();
}

void MemLink::Refuse(AnnouncementId announcement) {
  std::lock_guard lock(network_->mutex_);
  int side;
  MemNetwork::Wire* wire = network_->FindOffer(this, announcement, &side);
  if (wire == nullptr) return;
  const MemNetwork::Offer offer = wire->offers[side].at(announcement);
  wire->offers[side].erase(announcement);
  offer.sender->Report(ChunkSent{offer.operation});
}

void MemLink::Close(ConnectionId connection) {
  std::lock_guard lock(network_->mutex_);
  int side;
  if (MemNetwork::Wire* wire = network_->FindWire(this, connection, &side))
    network_->CloseSide(wire, side, absl::UnavailableError("the peer closed the connection"));
}

bool MemLink::Poll(std::vector<LinkEvent>* events) {
  std::lock_guard lock(network_->mutex_);
  if (inbox_.empty()) return false;
  if (wake_fd_ >= 0) {
    uint64_t count;
    BATON_CHECK(::read(wake_fd_, &count, sizeof(count)) == sizeof(count));
  }
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
