// The requests that are not over: by id, by state, and by the time of their alarm. Part of the
// Router, on its thread.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "router/request.h"

namespace baton {

class RequestIndex {
 public:
  // Takes in a request that waits, with a new id. The reference is valid until Forget.
  Request& Add(std::unique_ptr<Request> request);
  // Null: unknown or over.
  Request* Find(RequestId id) const;
  // Called after each change of the request's state, or when its alarm must ring later.
  void Update(const Request& request);
  // Lets the alarm ring sooner where it must. It may ring early and is then set again: moving it
  // with every token would be slow.
  void KeepAlarm(const Request& request);
  // The request is over: closes and destroys it.
  void Forget(Request& request);

  // A request whose alarm has rung; null: none. The caller changes it, so that its alarm is later.
  Request* TakeDue(absl::Time now);
  absl::Time NextAlarm() const;
  std::vector<Request*> In(RequestState state) const;  // in order of submission
  size_t n_in(RequestState state) const { return n_in_[static_cast<size_t>(state)]; }
  // Requests that have not ended for their clients.
  size_t n_living() const { return entries_.size() - n_in(RequestState::kEnding); }

 private:
  struct Entry {
    std::unique_ptr<Request> request;
    RequestState counted = RequestState::kWaiting;
    absl::Time alarm = absl::InfiniteFuture();  // none
  };
  absl::flat_hash_map<RequestId, Entry> entries_;
  std::array<size_t, 5> n_in_{};  // by state
  absl::btree_set<std::pair<absl::Time, RequestId>> alarms_;
};

}  // namespace baton
