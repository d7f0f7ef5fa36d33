#include "router/request_index.h"

#include <algorithm>

namespace baton {

Request& RequestIndex::Add(std::unique_ptr<Request> request) {
  Request& added = *request;
  entries_[added.id()].request = std::move(request);
  ++n_in_[static_cast<size_t>(RequestState::kWaiting)];
  Update(added);
  return added;
}

Request* RequestIndex::Find(RequestId id) const {
  const auto entry = entries_.find(id);
  return entry == entries_.end() ? nullptr : entry->second.request.get();
}

void RequestIndex::Update(const Request& request) {
  Entry& entry = entries_.at(request.id());
  --n_in_[static_cast<size_t>(entry.counted)];
  ++n_in_[static_cast<size_t>(entry.counted = request.state())];
  alarms_.erase({entry.alarm, request.id()});
  entry.alarm = request.Alarm();
  if (entry.alarm != absl::InfiniteFuture()) alarms_.insert({entry.alarm, request.id()});
}

void RequestIndex::KeepAlarm(const Request& request) {
  if (request.Alarm() < entries_.at(request.id()).alarm) Update(request);
}

void RequestIndex::Forget(Request& request) {
  request.Close();
  Update(request);  // no alarm any more
  entries_.erase(request.id());
}

Request* RequestIndex::TakeDue(absl::Time now) {
  while (!alarms_.empty() && alarms_.begin()->first <= now) {
    Request& request = *Find(alarms_.begin()->second);
    if (request.Alarm() <= now) return &request;
    Update(request);
  }
  return nullptr;
}

absl::Time RequestIndex::NextAlarm() const {
  return alarms_.empty() ? absl::InfiniteFuture() : alarms_.begin()->first;
}

std::vector<Request*> RequestIndex::In(RequestState state) const {
  std::vector<Request*> requests;
  for (const auto& [id, entry] : entries_)
    if (entry.request->state() == state) requests.push_back(entry.request.get());
  std::sort(requests.begin(), requests.end(),
            [](const Request* a, const Request* b) { return a->sequence() < b->sequence(); });
  return requests;
}

}  // namespace baton
