// Answers that wait for their clients, against a budget of all and of each address, and who is
// slowest to take them. Finding the slowest costs the same however many wait: they stand in the
// order in which some of their bytes were taken last. A plain object, on the loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "server/http/byte_budget.h"

namespace baton {

class HttpConnection;

class UnreadAnswers {
 public:
  // Stands for a connection, which holds nothing any more when it goes.
  struct Place {
    HttpConnection* connection = nullptr;
    uint64_t peer = 0;  // Transport::peer
    size_t bytes = 0;
    absl::Time since{};  // when the kernel took some last, or none waited
    std::list<Place*>::iterator of_all{}, of_address{};  // valid while bytes > 0

    // Bytes times the seconds since some were taken, and a little. (Who takes a byte now and then
    // lets the kernel take more only when a good part of its buffer is free.)
    double Slowness(absl::Time now) const {
      return static_cast<double>(bytes) * (absl::ToDoubleSeconds(now - since) + 1e-3);
    }
  };

  UnreadAnswers(size_t max, size_t max_per_address) : budget_(max, max_per_address) {}

  // The connection holds so many bytes from now on. has_taken: some were taken just now.
  void Hold(size_t bytes, bool has_taken, absl::Time now, Place* place) {
    const bool waited = place->bytes > 0, waits = bytes > 0;
    if (waits && (has_taken || !waited)) place->since = now;
    if (waits && !waited) {
      std::list<Place*>& of_this = of_address_[place->peer];
      place->of_all = all_.insert(all_.end(), place);
      place->of_address = of_this.insert(of_this.end(), place);
    } else if (waits && has_taken) {
      std::list<Place*>& of_this = of_address_.at(place->peer);
      all_.splice(all_.end(), all_, place->of_all);
      of_this.splice(of_this.end(), of_this, place->of_address);
    } else if (waited && !waits) {
      const auto of_this = of_address_.find(place->peer);
      all_.erase(place->of_all);
      of_this->second.erase(place->of_address);
      if (of_this->second.empty()) of_address_.erase(of_this);
    }
    budget_.Hold(place->peer, bytes, &place->bytes);
  }
  size_t total() const { return budget_.total(); }
  // Returns the slowest of the address if that is over its budget, or of all if they are over
  // theirs: of those of whom nothing was taken for longest. Null: no budget is exceeded, or one
  // alone waits, which may have so much.
  const Place* Slowest(uint64_t peer, absl::Time now) const {
    if (budget_.IsOver(peer)) return SlowestOf(of_address_.at(peer), now);
    return budget_.IsOver() ? SlowestOf(all_, now) : nullptr;
  }

 private:
  static const Place* SlowestOf(const std::list<Place*>& waiting, absl::Time now) {
    constexpr int kMaxLooks = 64;
    if (waiting.size() < 2) return nullptr;
    const Place* slowest = nullptr;
    int looks = 0;
    for (const Place* place : waiting) {
      if (slowest == nullptr || place->Slowness(now) > slowest->Slowness(now)) slowest = place;
      if (++looks == kMaxLooks) break;
    }
    return slowest;
  }

  ByteBudget budget_;
  std::list<Place*> all_;  // who has anything, the longest first
  absl::flat_hash_map<uint64_t, std::list<Place*>> of_address_;  // the same, none empty
};

}  // namespace baton
