// Cells of relay hops that wait for their plane, before the transfer room.
#include "lab/whole_planes.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr TicketId kHop{.high = 0, .low = 1}, kMain{.high = 0, .low = 2},
    kPush{.high = 0, .low = 3};

struct FilterFixture {
  void Post(const TransferCommand& command) {
    filter.OnCommand(command, [this](TransferCommand passed) {
      if (const auto* cells = std::get_if<SendCells>(&passed)) sent.push_back(*cells);
      ++n_passed;
    });
  }
  // Opens a handoff of 4 pages.
  void Open(const TicketId& id, int32_t promise_pages) {
    Ticket ticket;
    ticket.id = id;
    ticket.kv_pages = ticket.n_pages = 4;
    ticket.promise_pages = promise_pages;
    Post(OpenHandoff{.ticket = ticket, .peer = 2, .peer_address = {}});
  }
  void Send(const TicketId& id, int plane, int n_planes, int first_page,
            std::vector<int32_t> pages) {
    Post(SendCells{.ticket_id = id,
                   .plane = plane,
                   .n_planes = n_planes,
                   .first_page = first_page,
                   .pages = std::move(pages),
                   .after = ++n_sends});
  }

  WholePlanes filter;
  std::vector<SendCells> sent;
  int n_passed = 0;
  uint64_t n_sends = 0;
};

TEST_CASE("cells of a hop leave when their plane is complete, in any order of pages") {
  FilterFixture f;
  f.Open(kHop, 0);
  f.Send(kHop, 0, 3, 2, {12, 13});
  f.Send(kHop, 1, 1, 0, {10});
  CHECK(f.sent.empty());
  f.Send(kHop, 1, 1, 1, {11});
  REQUIRE(f.sent.size() == 1);
  CHECK(f.sent[0].plane == 1);
  CHECK(f.sent[0].n_planes == 1);
  CHECK(f.sent[0].first_page == 0);
  CHECK(f.sent[0].pages == std::vector<int32_t>{10, 11, 12, 13});
  CHECK(f.sent[0].after == 3);  // the engine has written all of them
  f.Send(kHop, 0, 1, 0, {10, 11});
  f.Send(kHop, 2, 1, 0, {10, 11});
  REQUIRE(f.sent.size() == 3);
  CHECK(f.sent[1].plane == 0);
  CHECK(f.sent[2].plane == 2);
  CHECK_FALSE(f.filter.idle());
  f.Post(CommitHandoff{.ticket_id = kHop, .record = {}});
  CHECK(f.filter.idle());
  CHECK(f.n_passed == 5);  // with OPEN and COMMIT
}

TEST_CASE("cells for the decode worker go as they come") {
  FilterFixture f;
  f.Open(kMain, 6);
  f.Open(kPush, 6);
  f.Send(kMain, 0, 1, 0, {10});
  f.Send(kPush, 1, 2, 3, {13});
  REQUIRE(f.sent.size() == 2);
  CHECK(f.sent[0].pages == std::vector<int32_t>{10});
  CHECK(f.sent[1].n_planes == 2);
  CHECK(f.filter.idle());
}

TEST_CASE("what is held of a hop that broke or was cancelled is forgotten") {
  const bool broke = GENERATE(true, false);
  FilterFixture f;
  f.Open(kHop, 0);
  f.Send(kHop, 0, 1, 0, {10, 11});
  if (broke)
    f.filter.OnEvent(HandoffEnded{.ticket_id = kHop, .status = absl::UnavailableError("lost")});
  else
    f.Post(CancelHandoff{.ticket_id = kHop});
  CHECK(f.filter.idle());
  f.Send(kHop, 0, 1, 2, {12});  // the room ignores what comes late
  CHECK(f.sent.size() == 1);
  f.Open(kHop, 0);  // in a later epoch
  f.Send(kHop, 0, 1, 0, {10, 11});
  CHECK(f.sent.size() == 1);
  f.Send(kHop, 0, 1, 2, {12, 13});
  CHECK(f.sent.size() == 2);
}

}  // namespace
}  // namespace baton
