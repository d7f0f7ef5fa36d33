// A queue in which senders take turns on a thread: whoever has put in thousands waits behind one of
// each other sender, and whoever takes much of the thread's time rests now and then, so that what
// it sends leaves most of that time, and of its core, to others. A plain object.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/check.h"

namespace baton {

// How much of the thread's time a sender has: `of_time`, in (0, 1], and about `burst` at once
// before. With 1 a sender never rests.
struct TurnShare {
  double of_time = 0.25;
  absl::Duration burst = absl::Milliseconds(5);
  absl::Duration rest = absl::Milliseconds(4);  // at least; then there is time for rest * of_time
};

template <typename T>
class FairQueue {
 public:
  explicit FairQueue(TurnShare share = {}) : share_(share) {}

  // Sender 0 stands for many, and never rests.
  void Push(uint64_t sender, T item) {
    Sender& of_this = senders_[sender];
    of_this.items.push_back(std::move(item));
    Await(sender, &of_this);
  }
  // Begins the turn of the next sender, with its oldest item. Nothing: there is none, or all who
  // have some rest. now: of MonotonicNow.
  std::optional<T> Begin(absl::Time now) {
    BATON_CHECK(!in_turn_);
    EndRests(now);
    if (turns_.empty()) return std::nullopt;
    in_turn_ = turns_.front();
    turns_.pop_front();
    began_ = now;
    Sender& of_this = senders_.at(*in_turn_);
    of_this.awaits_turn = false;
    T item = std::move(of_this.items.front());
    of_this.items.pop_front();
    return item;
  }
  // Ends the turn, and counts its time, but not what looks as if the thread itself had to wait.
  void End(absl::Time now) {
    const uint64_t sender = *std::exchange(in_turn_, std::nullopt);
    const auto found = senders_.find(sender);
    if (found == senders_.end()) return;  // cleared
    Sender& of_this = found->second;
    if (sender != 0) {
      debts_.erase({of_this.paid, sender});
      const absl::Duration spent = std::clamp(now - began_, absl::Microseconds(1), share_.burst);
      of_this.paid = std::max(of_this.paid, now) + spent / share_.of_time;
      const absl::Duration owed = of_this.paid - now, bound = share_.burst / share_.of_time;
      of_this.rests = owed > bound;
      if (of_this.rests)
        rests_.emplace(now + (owed - bound) + share_.rest, sender);
      else
        debts_.emplace(of_this.paid, sender);
    }
    Await(sender, &of_this);
    if (sender == 0 && of_this.items.empty()) senders_.erase(found);
  }
  // When Begin may have something though nothing is put in. InfiniteFuture: never.
  absl::Time next() const {
    return rests_.empty() ? absl::InfiniteFuture() : rests_.begin()->first;
  }
  void Clear() {
    turns_.clear();
    rests_.clear();
    debts_.clear();
    senders_.clear();
  }

 private:
  struct Sender {
    std::deque<T> items;
    bool awaits_turn = false, rests = false;
    absl::Time paid = absl::InfinitePast();  // when its share makes up for the turns it had
  };

  void Await(uint64_t sender, Sender* of_this) {
    if (of_this->items.empty() || of_this->awaits_turn || of_this->rests || in_turn_ == sender)
      return;
    of_this->awaits_turn = true;
    turns_.push_back(sender);
  }
  // Rests end, and who has paid and has no item is forgotten.
  void EndRests(absl::Time now) {
    while (!rests_.empty() && rests_.begin()->first <= now) {
      const uint64_t sender = rests_.extract(rests_.begin()).value().second;
      Sender& of_this = senders_.at(sender);
      of_this.rests = false;
      debts_.emplace(of_this.paid, sender);
      Await(sender, &of_this);
    }
    while (!debts_.empty() && debts_.begin()->first <= now) {
      const auto found = senders_.find(debts_.extract(debts_.begin()).value().second);
      if (found->second.items.empty()) senders_.erase(found);
    }
  }

  const TurnShare share_;
  std::deque<uint64_t> turns_;  // senders that have items and do not rest, the next one first
  absl::flat_hash_map<uint64_t, Sender> senders_;  // who have items, or owe time
  // One of them has who owes time: by the time when the rest ends, or when all is paid.
  std::set<std::pair<absl::Time, uint64_t>> rests_, debts_;
  std::optional<uint64_t> in_turn_;
  absl::Time began_;
};

}  // namespace baton
