// A Transfer with a pool, for a test thread that waits for events.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kvtransfer/protocol/link.h"
#include "kvtransfer/transfer.h"
#include "tests/kvtransfer/test_pool.h"

namespace baton {

using TransferStarter = std::function<absl::StatusOr<std::unique_ptr<Transfer>>(
    const NodeOptions&, const PoolView&, std::function<void(TransferEvent)>)>;

class TransferNode {
 public:
  TransferNode(const TransferStarter& start, const NodeOptions& options, int32_t n_pages,
               const std::vector<int64_t>& planes, int64_t gap = 0)
      : pool_(n_pages, planes, gap), incarnation_(options.facts.incarnation) {
    auto transfer = start(options, pool_.view(), [this](TransferEvent event) {
      std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
      changed_.notify_all();
    });
    if (transfer.ok()) transfer_ = *std::move(transfer);
    status_ = transfer.status();
  }

  const absl::Status& status() const { return status_; }
  Transfer& transfer() { return *transfer_; }
  TestPool& pool() { return pool_; }

  void LendAll() {
    LendPages lend;
    for (int32_t page = 0; page < pool_.view().n_pages; ++page) lend.pages.push_back(page);
    transfer_->Post(std::move(lend));
  }
  void Open(const Ticket& ticket, TransferNode& sink) {
    transfer_->Post(OpenHandoff{ticket, sink.incarnation_, sink.transfer().address()});
  }
  // Sends the pages, given by their ids in this pool, plane after plane, then COMMIT.
  void Send(const Ticket& ticket, const std::vector<int32_t>& pages) {
    for (int32_t plane = 0; plane < pool_.n_planes(); ++plane)
      transfer_->Post(SendCells{.ticket_id = ticket.id, .plane = plane, .pages = pages});
  }
  void Commit(const Ticket& ticket) {
    transfer_->Post(CommitHandoff{ticket.id, {.first_token = 1, .n_tokens = 2}});
  }
  void SendAndCommit(const Ticket& ticket, const std::vector<int32_t>& pages) {
    Send(ticket, pages);
    Commit(ticket);
  }
  // Returns the next event of this kind, in order; other kinds stay queued. nullopt: none in time.
  template <typename E>
  std::optional<E> Wait(int64_t timeout_ms = 20'000) {
    std::unique_lock lock(mutex_);
    std::optional<E> found;
    changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] {
      for (auto it = events_.begin(); it != events_.end(); ++it) {
        E* event = std::get_if<E>(&*it);
        if (event == nullptr) continue;
        found = std::move(*event);
        events_.erase(it);
        return true;
      }
      return false;
    });
    return found;
  }
  // Ends the Transfer; its last events stay queued.
  void Stop() { transfer_.reset(); }

 private:
  TestPool pool_;
  const Incarnation incarnation_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TransferEvent> events_;
  absl::Status status_;
  std::unique_ptr<Transfer> transfer_;
};

inline absl::StatusOr<std::unique_ptr<Transfer>> StartUcx(
    const NodeOptions& options, const PoolView& pool, std::function<void(TransferEvent)> on_event) {
  return Transfer::Start(options, options.facts, pool, std::move(on_event));
}

// The options of a test's node, with this transport.
inline NodeOptions OptionsBy(KvTransport transport, Incarnation incarnation) {
  NodeOptions options = TestOptions(incarnation);
  options.transport = transport;
  return options;
}

class UcxNode : public TransferNode {
 public:
  UcxNode(const NodeOptions& options, int32_t n_pages, const std::vector<int64_t>& planes,
          int64_t gap = 0)
      : TransferNode(StartUcx, options, n_pages, planes, gap) {}
};

}  // namespace baton
