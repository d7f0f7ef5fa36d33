// The transfer room of a simulated cluster: keeps the contract of kvtransfer/transfer.h between
// pools of one process, one random pending action at a time. A cell is copied when its action runs,
// long after SendCells, so a source that touches its pages too early spoils the copy.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "engine/kv/kv_pool.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

class SimTransfer {
 public:
  explicit SimTransfer(std::mt19937_64* random) : random_(random) {}

  int AddEnd(Incarnation incarnation, KvPool* pool);
  void Post(int end, TransferCommand command);  // from that end's worker
  bool HasWork() const;
  void RunOne();  // one random pending command, cell or event
  std::function<void(int end, TransferEvent event)> deliver;
  // Whether that end's engine has reached a fence of a command.
  std::function<bool(int end, uint64_t after)> reached;
  void FailAll();
  void CloseEnd(int end);  // gives its lent pages back
  int promised_pages(int end) const;
  int n_open() const { return static_cast<int>(flows_.size()); }

 private:
  enum class State { kWaiting, kPromised };
  struct Flow {
    Ticket ticket;
    int source = 0, sink = 0;
    State state = State::kWaiting;
    std::vector<int32_t> pages;  // at the sink
    std::deque<SendCells> cells;
    int cells_in = 0;
    bool committed = false;
    CommitRecord record;
  };
  struct End {
    Incarnation incarnation = 0;
    KvPool* pool = nullptr;
    std::vector<int32_t> receive_pool;
    std::deque<LendPages> lent;  // whose fences are not known to be reached
    std::deque<TicketId> waiting;
    uint64_t promises = 0;
    std::deque<TransferCommand> commands;  // in order
    std::deque<TransferEvent> events;      // in order
    std::vector<TicketId> cancelled;
  };
  struct TicketLess {
    bool operator()(const TicketId& a, const TicketId& b) const {
      return a.high != b.high ? a.high < b.high : a.low < b.low;
    }
  };
  using Flows = std::map<TicketId, Flow, TicketLess>;

  void Run(int end, TransferCommand command);
  void Open(int end, const OpenHandoff& open);
  bool CanLend(int end) const;
  void Lend(int end);
  bool CanCopy(const Flow& flow) const;
  void CopyCells(Flow& flow);
  void FinishIfComplete(Flows::iterator it);
  void Fail(Flows::iterator it, const absl::Status& status);
  void PromiseWaiting(int end);
  void ReportReceivePool(int end);

  std::mt19937_64* random_;
  std::vector<End> ends_;
  Flows flows_;
};

}  // namespace baton
