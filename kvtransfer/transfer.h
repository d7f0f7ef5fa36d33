// Moves cells of KV bytes from a page pool here into promised pages of another process, and says
// when they are there. A cell is (plane, page): one plane (layer) of one page, contiguous bytes.
// This room knows planes, pages and tickets; no layers, heads or tokens.
//
// Threads: Transfer owns one link thread which owns all of UCX and all handoff state. Commands go
// in by Post from any thread; events come out through the sink function given at Start, called on
// the link thread (it must only post to a mailbox).
//
// Handoff: source OPEN -> sink PROMISE (a count of pages, at once) or NO_ROOM (the sink keeps the
// request and promises when pages come back) -> DATA/ACK per chunk -> DONE -> COMMIT -> COMMITTED.
// The sink, owner of the memory, posts every receive itself (owner-initiated push). A handoff whose
// connection breaks goes on over the next one and sends only what is missing.
//
// A handoff may come in parts from several sources (Ticket::part_of), each of which opens, sends
// and commits its own. The main one is promised all pages and alone makes events at the sink: it
// has arrived when its own cells and all parts are there. OPENs come in any order; a part is
// answered NO_ROOM until the main one is promised. If one of them fails all do, and no page comes
// back while any may still be written.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

class Link;
using LinkMaker = std::function<absl::StatusOr<std::unique_ptr<Link>>()>;

class Transfer {
 public:
  // Binds the listener and starts the link thread.
  static absl::StatusOr<std::unique_ptr<Transfer>> Start(
      const TransferOptions& options, const PoolView& pool,
      std::function<void(TransferEvent)> on_event);
  // The same over another link than UCX, made on the link thread.
  static absl::StatusOr<std::unique_ptr<Transfer>> StartOver(
      LinkMaker make_link, const TransferOptions& options, const PoolView& pool,
      std::function<void(TransferEvent)> on_event);
  // Cancels what is open, closes endpoints, joins the link thread; lent pages come out in a last
  // PagesReturned event before this returns.
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  const std::string& address() const;  // host:port that peers open
  void Post(TransferCommand command);  // any thread; bounded by the pages and tickets that exist
  TransferCounters counters() const;   // any thread
  // Of a Transfer that was started with a pace: another one, from now on. Any thread; what is
  // posted after it finds it.
  void SetPace(const LinkPace& pace);
  // Peers handed over to so far, in order of incarnation; bounded, the idle are forgotten. Any
  // thread.
  std::vector<LinkReport> links() const;

 private:
  class Loop;
  explicit Transfer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace baton
