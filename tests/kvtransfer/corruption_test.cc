// Ten thousand chunks and many control messages that are damaged, swapped, replayed and truncated
// on their way: each fault is detected, counted under its kind and repaired, and the received KV is
// byte-exact.
#include <array>
#include <deque>
#include <optional>

#include "tests/kvtransfer/core_pair.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

enum Kind { kFlip, kSwap, kShortCopy, kReplay, kTruncate, kHeaderFlip };
constexpr size_t kKinds = 6;
ChunkRefusal NoticedAs(Kind kind) {
  if (kind == kReplay) return ChunkRefusal::kUnknownHandoff;
  if (kind == kTruncate) return ChunkRefusal::kLength;
  return kind == kHeaderFlip ? ChunkRefusal::kHeader : ChunkRefusal::kPayload;
}

// Damages the source's announcements, one at a time, so that a counter must show each.
class Tampering {
 public:
  Tampering(CorePair* pair, std::array<uint64_t, kKinds>* injected)
      : pair_(pair), injected_(injected) {
    pair_->source.tap.on_announce = [this](TappedLink::Announced* chunk) { OnAnnounce(chunk); };
  }
  // Called after every step. A message sent on a connection that had just ended does not count.
  void Settle() {
    if (!pending_) return;
    const TransferCounters& counters = pair_->sink.core->counters();
    const uint64_t counted = Refused(counters, NoticedAs(pending_->kind));
    if (counted == pending_->counted + 1) {
      ++(*injected_)[pending_->kind];
      pending_.reset();
    } else if (!pair_->source.tap.connections().contains(pending_->connection)) {
      pending_.reset();
    }
  }
  bool settled() const { return !pending_.has_value(); }

 private:
  struct Pending {
    Kind kind;
    ConnectionId connection;
    uint64_t counted;
  };
  struct Old {
    wire::ChunkHeaderBytes header;
    std::vector<std::byte> payload;
  };

  uint64_t Random(uint64_t n) { return pair_->cluster.random() % n; }

  void OnAnnounce(TappedLink::Announced* chunk) {
    const std::vector<std::byte> payload(chunk->payload, chunk->payload + chunk->length);
    const wire::ChunkHeaderBytes header = chunk->header;
    if (!pending_ && Random(2) == 0) Tamper(chunk, payload);
    old_.push_back({header, payload});
  }

  void Tamper(TappedLink::Announced* chunk, const std::vector<std::byte>& payload) {
    const auto kind = static_cast<Kind>(Random(kKinds));
    const auto ticket_of = [](const wire::ChunkHeaderBytes& bytes) {
      return std::vector<uint8_t>(bytes.begin() + 8, bytes.begin() + 28);  // and epoch
    };
    std::vector<std::byte> changed = payload;
    switch (kind) {
      case kFlip:
        changed[Random(changed.size())] ^= std::byte{1} << Random(8);
        break;
      case kShortCopy:  // the rest of the buffer keeps its earlier bytes
        for (size_t i = Random(changed.size()); i < changed.size(); ++i) changed[i] = kCanary;
        break;
      case kSwap: {
        const auto other = std::find_if(old_.rbegin(), old_.rend(), [&](const Old& old) {
          return old.payload.size() == payload.size() && old.payload != payload;
        });
        if (other == old_.rend()) return;
        changed = other->payload;
        break;
      }
      case kReplay: {
        const auto other = std::find_if(old_.rbegin(), old_.rend(), [&](const Old& old) {
          return ticket_of(old.header) != ticket_of(chunk->header);
        });
        if (other == old_.rend()) return;
        buffers_.push_back(other->payload);
        pair_->source.tap.link()->Announce(chunk->connection, TappedLink::kTestOperations + n_++,
                                           other->header, buffers_.back().data(),
                                           buffers_.back().size());
        break;
      }
      case kTruncate:
        chunk->length = Random(chunk->length);
        break;
      case kHeaderFlip:
        chunk->header[Random(chunk->header.size())] ^= static_cast<uint8_t>(1u << Random(8));
        break;
    }
    if (kind == kFlip || kind == kShortCopy || kind == kSwap) {
      if (changed == payload) return;
      buffers_.push_back(std::move(changed));
      chunk->payload = buffers_.back().data();
    }
    pending_ = {kind, chunk->connection, Refused(pair_->sink.core->counters(), NoticedAs(kind))};
  }

  CorePair* const pair_;
  std::array<uint64_t, kKinds>* const injected_;
  std::optional<Pending> pending_;
  std::vector<Old> old_;
  std::deque<std::vector<std::byte>> buffers_;  // kept until the link no longer reads them
  OperationId n_ = 0;
};

// Hands over one request, dispatched again with a higher epoch until it arrives. Returns the number
// of attempts.
int HandOver(CorePair& pair, uint64_t n, const std::function<void()>& after_step) {
  for (Epoch epoch = 1; epoch < 100; ++epoch) {
    const Ticket ticket = MakeTicket(n, 2, 5, 6, epoch);
    pair.source.events.clear();
    pair.sink.events.clear();
    pair.Open(ticket);
    pair.SendAll(ticket);
    pair.source.core->Handle(CommitHandoff{ticket.id, {.first_token = int32_t(n), .n_tokens = 77}},
                             pair.cluster.now_us);
    const int64_t end_us = pair.cluster.now_us + 60'000'000;
    while (pair.source.core->busy() || pair.sink.core->busy()) {
      REQUIRE(pair.cluster.now_us < end_us);
      if (!pair.cluster.Step()) pair.cluster.now_us += TransferCore::kTickUs;
      after_step();
    }
    if (!pair.source.PagesAccounted() || !pair.sink.PagesAccounted()) FAIL("pages");
    const auto* arrived = CoreCluster::Find<HandoffArrived>(pair.sink);
    const auto* ended = CoreCluster::Find<HandoffEnded>(pair.source);
    REQUIRE(ended != nullptr);
    if (ended->status.ok()) REQUIRE(arrived != nullptr);
    if (arrived == nullptr) continue;
    REQUIRE(arrived->record.first_token == int32_t(n));
    REQUIRE(arrived->record.n_tokens == 77);
    for (int32_t i = 0; i < 5; ++i)
      REQUIRE(SamePage(pair.source.pool, i, pair.sink.pool, arrived->pages[size_t(i)]));
    const std::vector<int32_t> pages = arrived->pages;
    pair.sink.events.clear();
    for (const int32_t page : pages) pair.sink.Own(page);
    pair.sink.Lend(6, pair.cluster.now_us);
    return int(epoch);
  }
  FAIL("never arrived");
  return 0;
}

TEST_CASE("10^4 chunks tampered with: nothing wrong arrives, each is counted under its kind") {
  std::array<uint64_t, kKinds> injected{};
  std::array<uint64_t, kChunkRefusals> counted{};
  uint64_t total = 0, n_requests = 0, n_attempts = 0;
  for (uint64_t seed = 1; total < 10'000; ++seed) {
    INFO("seed " << seed);
    CorePair pair(seed, 16, 260);
    Tampering tampering(&pair, &injected);
    for (uint64_t n = 1; n <= 20; ++n, ++n_requests) {
      for (int32_t page = 0; page < 5; ++page) pair.source.pool.FillPage(page, seed * 100 + n);
      n_attempts += uint64_t(HandOver(pair, n, [&] { tampering.Settle(); }));
    }
    pair.cluster.RunUntilQuiet();
    tampering.Settle();
    REQUIRE(tampering.settled());
    const auto& refused = pair.sink.core->counters().refused_chunks;
    for (size_t why = 0; why < kChunkRefusals; ++why) counted[why] += refused[why];
    total = 0;
    for (const uint64_t n : injected) total += n;
  }
  std::array<uint64_t, kChunkRefusals> expected{};
  for (size_t kind = 0; kind < kKinds; ++kind) {
    expected[size_t(NoticedAs(Kind(kind)))] += injected[kind];
    CHECK(injected[kind] > 1'000);
  }
  for (size_t why = 0; why < kChunkRefusals; ++why) {
    INFO(NameOf(ChunkRefusal(why)));
    CHECK(counted[why] == expected[why]);
  }
  WARN("tampered with " << total << " chunks of " << n_requests << " requests, " << n_attempts
                        << " attempts: " << injected[kFlip] << " flipped, " << injected[kSwap]
                        << " swapped, " << injected[kShortCopy] << " copied short, "
                        << injected[kReplay] << " replayed, " << injected[kTruncate]
                        << " truncated, " << injected[kHeaderFlip] << " headers flipped");
}

TEST_CASE("control messages damaged on their way: no record and no byte arrives wrong") {
  uint64_t n_damaged = 0, n_resumed = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    INFO("seed " << seed);
    CorePair pair(seed, 16, 260);
    const auto damage = [&](std::string* message) {
      if (pair.cluster.random() % 20 != 0) return;
      ++n_damaged;
      char& byte = (*message)[pair.cluster.random() % message->size()];
      byte = static_cast<char>(byte ^ (1 << pair.cluster.random() % 8));
    };
    pair.source.tap.on_send = pair.sink.tap.on_send = damage;
    for (uint64_t n = 1; n <= 10; ++n) HandOver(pair, n, [] {});
    n_resumed += pair.source.core->counters().handoffs_resumed;
  }
  CHECK(n_damaged > 1'000);
  CHECK(n_resumed > 300);
}

}  // namespace
}  // namespace baton
