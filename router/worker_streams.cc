#include "router/worker_streams.h"

#include <utility>
#include <variant>

namespace baton {

absl::Status WorkerStreams::OnReport(Incarnation worker, const WorkerReport& report,
                                     absl::Time now) {
  if (closed_.contains(worker)) return absl::OkStatus();
  absl::Status status = router_->OnReport(worker, report, now);
  if (!status.ok()) Close(worker, status);
  return status;
}

void WorkerStreams::OnLost(Incarnation worker, absl::Time now) {
  Collect();
  closed_.erase(worker);
  closes_.erase(worker);
  messages_.erase(worker);
  router_->OnWorkerLost(worker, now);
}

void WorkerStreams::Collect() {
  for (RouterEffect& effect : router_->TakeEffects()) {
    if (auto* send = std::get_if<SendToWorker>(&effect))
      messages_[send->worker].push_back(std::move(send->message));
    else if (auto* close = std::get_if<CloseWorker>(&effect))
      Close(close->worker, std::move(close->reason));
    else
      emissions_.push_back(std::move(effect));
  }
}

void WorkerStreams::Close(Incarnation worker, absl::Status reason) {
  closed_.insert(worker);
  closes_.emplace(worker, std::move(reason));
}

}  // namespace baton
