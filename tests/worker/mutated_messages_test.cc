// A router that went mad, or a router's message that was written wrongly: every field at its worst,
// and any bytes. Such a message costs its own request at most: the others on the worker get the
// same tokens, and every page comes back.
#include <random>

#include "proto/request_owner.h"
#include "tests/proto/every_message.h"
#include "tests/support/control_bytes.h"
#include "tests/support/mutated_message.h"
#include "tests/worker/worker_fixture.h"

namespace baton {
namespace {

constexpr RequestId kGood = 1'000'000;  // and upwards

bool IsOf(const RouterMessage& message, RequestId request) {
  return std::visit(
      [request](const auto& m) {
        if constexpr (requires { m.request_id; }) return m.request_id == request;
        return true;  // of the whole worker: a good router says it, too
      },
      message);
}

// A transfer room whose peers are all away: handoffs end when they are cancelled, and pages come
// back when asked for.
class LonelyTransfer {
 public:
  explicit LonelyTransfer(WorkerFixture* rig) : rig_(rig) {}

  // Carries out all commands, and what the core says to their events.
  void Run() {
    while (!rig_->commands.empty()) {
      const std::vector<TransferCommand> commands = std::exchange(rig_->commands, {});
      for (const TransferCommand& command : commands)
        std::visit([this](const auto& c) { On(c); }, command);
      rig_->Turns();
    }
  }

 private:
  void On(const OpenHandoff& open) { REQUIRE(open_.insert(open.ticket.id).second); }
  void On(const AwaitInflow& await) {
    REQUIRE(awaited_.insert({await.ticket_id, await.epoch}).second);
  }
  void On(const CancelHandoff& cancel) {
    const absl::Status status = absl::CancelledError("asked to");
    if (open_.erase(cancel.ticket_id) > 0)
      Say(HandoffEnded{.ticket_id = cancel.ticket_id, .status = status});
    if (awaited_.erase({cancel.ticket_id, cancel.epoch}) > 0)
      Say(InflowFailed{.ticket_id = cancel.ticket_id, .epoch = cancel.epoch, .status = status});
  }
  void On(const LendPages& lend) {
    lent_.insert(lent_.end(), lend.pages.begin(), lend.pages.end());
    Say(ReceivePoolChanged{.free_pages = static_cast<int32_t>(lent_.size())});
  }
  void On(const LendHeld& held) { Say(PagesReturned{held.pages}); }  // too late
  void On(const ReclaimPages& reclaim) {
    const size_t n = std::min(lent_.size(), static_cast<size_t>(reclaim.n));
    Say(PagesReturned{{lent_.end() - static_cast<std::ptrdiff_t>(n), lent_.end()}});
    lent_.resize(lent_.size() - n);
    Say(ReceivePoolChanged{.free_pages = static_cast<int32_t>(lent_.size())});
  }
  void On(const auto&) {}

  void Say(TransferEvent event) { rig_->core->Handle(std::move(event)); }

  WorkerFixture* const rig_;
  std::set<TicketId> open_;
  std::set<std::pair<TicketId, Epoch>> awaited_;
  std::vector<int32_t> lent_;
};

class SoundRig {
 public:
  SoundRig() { Begin(); }
  ~SoundRig() {
    rig_.core->Close();
    transfer_.Run();
  }

  // Messages that a router might send: a whole request for this worker, its halves, its end.
  std::vector<RouterMessage> Base(size_t kind) const {
    PrefillRequest prefill;
    prefill.request_id = 7;
    prefill.epoch = 1;
    prefill.tokens = rig_.prompt;
    prefill.sampling.temperature = 0;
    prefill.max_total_tokens = 24;
    const Ticket ticket{.id = kSequenceTicket,
                        .epoch = 1,
                        .request_id = 7,
                        .sink = kSelf,
                        .promise = kSequenceTicket,
                        .kv_pages = 5,
                        .promise_pages = 6,
                        .n_pages = 5};
    SetWhole(&prefill, ticket, {.incarnation = kSelf});
    const DecodeRequest decode{.request_id = 7,
                               .epoch = 1,
                               .ticket_id = kSequenceTicket,
                               .tokens = rig_.prompt,
                               .max_tokens = 4,
                               .sampling = {.temperature = 0}};
    PrefillRequest alone = prefill;  // its KV is for nobody
    SetWhole(&alone, {}, {});
    if (kind == 0) return {decode, prefill};
    if (kind == 1) return {alone};
    if (kind == 2) return {prefill};
    if (kind == 3) return {EveryMessage()[3]};
    return {CancelRequest{.request_id = 7, .epoch = 1}};
  }
  static constexpr size_t kKinds = 5;

  // Takes bytes as the worker's end of the stream does.
  void Take(const std::string& bytes) {
    ++n_sent_;
    auto decoded = ParseMessages(bytes);
    if (!decoded.ok() || !CheckOwner(decoded->messages, 0).ok()) {
      ++n_refused;  // the stream ends: all requests of this worker go on elsewhere
    } else {
      n_unreadable += static_cast<int>(decoded->unreadable.size());
      for (RouterMessage& message : decoded->messages) {
        if (IsOf(message, good_)) continue;
        ++n_taken;
        rig_.Say(std::move(message));
      }
    }
    rig_.Turns();
    transfer_.Run();
    if (n_sent_ % 8 == 0) Finish();
  }

  int n_taken = 0, n_unreadable = 0, n_refused = 0, n_whole = 0;

 private:
  void Begin() {
    good_ = kGood + static_cast<RequestId>(n_whole);
    const TicketId ticket{.high = 77, .low = good_};
    rig_.Say(DecodeRequest{.request_id = good_,
                           .epoch = 1,
                           .ticket_id = ticket,
                           .tokens = rig_.prompt,
                           .max_tokens = 4,
                           .sampling = {.temperature = 0}});
  }
  // The good request ends whole, whatever came in between.
  void Finish() {
    PrefillRequest request;
    request.request_id = good_;
    request.epoch = 1;
    request.tokens = rig_.prompt;
    request.sampling.temperature = 0;
    request.max_total_tokens = 24;
    const TicketId ticket{.high = 77, .low = good_};
    SetWhole(&request,
             {.id = ticket, .promise = ticket, .kv_pages = 5, .promise_pages = 6, .n_pages = 5},
             {.incarnation = kSelf});
    rig_.Say(request);
    rig_.Turns();
    transfer_.Run();
    std::vector<int32_t> tokens;
    for (const TokenOut& token : rig_.tokens[good_]) tokens.push_back(token.token);
    REQUIRE(tokens == expected_);
    ++n_whole;
    // The stream ends: nothing of what nobody would cancel stays.
    rig_.core->Handle(RouterEvent(RouterDisconnected{}));
    rig_.Turns();
    transfer_.Run();
    rig_.core->Handle(RouterEvent(RouterConnected{}));
    rig_.n_told = 0;  // messages to it are numbered anew
    Begin();
  }

  WorkerFixture rig_;
  LonelyTransfer transfer_{&rig_};
  const std::vector<int32_t> expected_ = Expected(rig_.prompt, 4).tokens;
  RequestId good_ = 0;
  int n_sent_ = 0;
};

}  // namespace

TEST_CASE("a ticket that another prompt has is refused, and the other prompt goes on") {
  WorkerFixture rig;
  LonelyTransfer transfer(&rig);
  for (const RequestId id : {7, 8}) {
    PrefillRequest request;
    request.request_id = id;
    request.epoch = 1;
    request.tokens = rig.prompt;
    request.sampling.temperature = 0;
    SetWhole(&request,
             {.id = kSequenceTicket,
              .promise = kSequenceTicket,
              .kv_pages = 5,
              .promise_pages = 6,
              .n_pages = 5},
             {.incarnation = kSelf + 1, .address = "127.0.0.1:1"});
    rig.Say(request);
    rig.Turns();
  }
  REQUIRE(rig.ends.size() == 1);
  CHECK(rig.ends[0].request_id == 8);
  CHECK(rig.ends[0].reason == EndReason::kFailed);
  CHECK(rig.ends[0].message == "a ticket of the request is not its alone");
  transfer.Run();  // checks that the handoff is opened once
  rig.core->Close();
  transfer.Run();
}

TEST_CASE("every field of every message at its worst costs its own request at most") {
  int n_taken = 0, n_unreadable = 0, n_whole = 0;
  for (size_t kind = 0; kind < SoundRig::kKinds; ++kind) {
    SoundRig rig;
    const wire::RouterMessages base = Encoded(rig.Base(kind));
    for (const Mutation& mutate : MutationsOf(base)) {
      wire::RouterMessages messages = base;
      mutate(&messages);
      rig.Take(messages.SerializeAsString());
    }
    n_taken += rig.n_taken;
    n_unreadable += rig.n_unreadable;
    n_whole += rig.n_whole;
  }
  WARN(n_taken << " messages taken, " << n_unreadable << " unreadable, " << n_whole
               << " requests whole");
  CHECK(n_taken > 200);
  CHECK(n_unreadable > 200);
  CHECK(n_whole > 50);
}

TEST_CASE("20,000 messages of changed bytes cost their own requests at most") {
  SoundRig rig;
  std::mt19937_64 random(29);
  for (int run = 0; run < 20000; ++run)
    rig.Take(MutatedBytes(Encoded(rig.Base(random() % SoundRig::kKinds)), &random));
  WARN(rig.n_taken << " messages taken, " << rig.n_unreadable << " unreadable, " << rig.n_refused
                   << " streams ended, " << rig.n_whole << " requests whole");
  CHECK(rig.n_taken > 2000);
  CHECK(rig.n_unreadable > 1000);
  CHECK(rig.n_whole > 2000);
}

}  // namespace baton
