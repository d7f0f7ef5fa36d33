// Somebody on the network who hears every message between workers, has no key, and repeats what it
// has heard: it connects to a worker and answers the challenge with a HELLO of another connection
// to the same worker. Must never be let in, and nobody else may notice.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/violation.h"
#include "tests/support/mem_link.h"

namespace baton::sim {

class Intruder {
 public:
  explicit Intruder(MemNetwork* network) : link_(network->MakeLink(nullptr, "intruder:1")) {}

  void Overhear(const std::string& to, const std::string& message) {
    const absl::StatusOr<wire::Message> decoded = wire::Decode(message);
    if (decoded.ok() && std::holds_alternative<wire::Hello>(*decoded)) heard_[to] = message;
  }
  // Connects to a worker, each in turn.
  void Try() {
    if (heard_.empty()) return;
    auto it = heard_.upper_bound(tried_);
    if (it == heard_.end()) it = heard_.begin();
    tried_ = it->first;
    hellos_[link_->Connect(it->first)] = it->second;
  }
  // Throws Violation if it was let in.
  void Turn() {
    link_->Poll(&events_);
    for (const LinkEvent& event : events_) {
      if (const auto* lost = std::get_if<ConnectionLost>(&event)) hellos_.erase(lost->connection);
      const auto* arrived = std::get_if<MessageArrived>(&event);
      if (arrived == nullptr) continue;
      const absl::StatusOr<wire::Message> message = wire::Decode(arrived->bytes);
      const auto* ack = message.ok() ? std::get_if<wire::HelloAck>(&*message) : nullptr;
      Require(ack == nullptr || ack->code != 0, "a recorded HELLO was believed");
      if (message.ok() && std::holds_alternative<wire::Challenge>(*message))
        link_->Send(arrived->connection, hellos_[arrived->connection]);
    }
    events_.clear();
  }

 private:
  const std::unique_ptr<MemLink> link_;
  std::map<std::string, std::string> heard_;  // the last HELLO to each address
  std::string tried_;
  std::map<ConnectionId, std::string> hellos_;  // to answer with
  std::vector<LinkEvent> events_;
};

}  // namespace baton::sim
