// Moves cells of KV bytes from a page pool in this process into promised pages of another process,
// and reports their arrival. A cell is (plane, page): one plane (layer) of one page, contiguous
// bytes. This room knows planes, pages and tickets, but not layers, heads or tokens.
//
// Threads: Transfer owns one link thread which owns all of UCX and all handoff state. Commands go
// in by Post from any thread; events come out through the sink function given at Start, called on
// the link thread (it must only post to a mailbox).
//
// Handoff: source OPEN -> sink PROMISE (a count of pages, at once) or NO_ROOM (the sink keeps the
// request and promises when pages come back) -> DATA/ACK per chunk -> DONE -> COMMIT -> COMMITTED.
// The sink owns the memory and posts every receive itself (owner-initiated push). A handoff whose
// connection breaks continues over the next connection and sends only the missing chunks.
//
// Several sources may fill one promise (Ticket::promise): each has a ticket for a range of its
// pages, and opens, sends and commits separately, in any order. The promise alone makes events at
// the sink: it has arrived when its ranges are all of its pages and all are committed. If one
// handoff fails, all fail, and no page is returned while any of them may still be written.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/mailbox.h"
#include "common/status.h"
#include "kvtransfer/protocol/link.h"
#include "kvtransfer/protocol/transfer_core.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

class Transfer {
 public:
  // Binds the listener and starts the link thread. The pool's memory must outlive the Transfer.
  // InvalidArgument: options, facts or pool are wrong (TransferCore::Validate), or listen_host is
  // no IPv4 address of this machine. Unavailable: UCX refused, for example because the port is
  // taken. make_copier: called on the link thread; null as for TransferCore.
  static absl::StatusOr<std::unique_ptr<Transfer>> Start(
      const TransferOptions& options, const TransferFacts& facts, const PoolView& pool,
      std::function<void(TransferEvent)> on_event, CopierMaker make_copier = nullptr);
  // Starts over another link than UCX at listen_host; make_link is called on the link thread.
  // Errors: those of Validate, and those of make_link.
  static absl::StatusOr<std::unique_ptr<Transfer>> StartOver(
      LinkMaker make_link, const TransferOptions& options, const TransferFacts& facts,
      const PoolView& pool, std::function<void(TransferEvent)> on_event,
      CopierMaker make_copier = nullptr);
  // Cancels open handoffs, closes connections, joins the link thread; waits at most 3 s for peers.
  // A last PagesReturned event returns the lent pages before the destructor returns.
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Any thread; host:port for peers to connect to.
  const std::string& address() const { return address_; }
  void Post(TransferCommand command);  // any thread; bounded by the pages and tickets that exist
  TransferCounters counters() const;   // any thread
  // Links to the peers handed over to so far, in order of incarnation; idle peers beyond a bound
  // are forgotten. Any thread.
  std::vector<LinkReport> links() const;

 private:
  Transfer(const TransferOptions& options, const TransferFacts& facts, const PoolView& pool,
           std::function<void(TransferEvent)> on_event);
  void Wake();
  void Run(LinkMaker make_link, const CopierMaker& make_copier, std::promise<absl::Status> started);
  void Turn();
  bool DrainMail();
  void Sleep();
  void Leave();
  void TurnWhileBusy();
  void PublishCounters();

  const TransferOptions options_;
  const TransferFacts facts_;
  const PoolView pool_;
  const std::function<void(TransferEvent)> on_event_;
  const int mail_fd_;
  Mailbox<TransferCommand> mailbox_;
  std::atomic<bool> leaving_ = false;
  std::string address_;
  mutable std::mutex counters_mutex_;
  TransferCounters counters_;
  std::vector<LinkReport> links_;
  std::thread thread_;

  // Link thread only.
  int64_t moved_us_ = 0;  // time of the last event
  uint64_t links_version_ = 0;
  std::unique_ptr<Link> link_;
  std::unique_ptr<TransferCore> core_;
  std::vector<TransferCommand> commands_;
  std::vector<LinkEvent> link_events_;
};

}  // namespace baton
