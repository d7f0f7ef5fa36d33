// Mutated messages on the control and KV wires of a running cluster: a real router process and real
// workers over UCX (crowd_rig.h). Strangers send frames of HTTP/2 to the control port; a member
// that went mad sends reports with any field or byte wrong; a peer with the cluster key sends any
// message of the KV wire to the workers. After each input the router answers /health within
// `hang`, and streams of others have their text all the time. A slice runs in CI; "[.][20000]" is
// the command of docs/SECURITY.md.
#include <grpcpp/generic/generic_stub.h>
#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "kvtransfer/links/ucx_link.h"
#include "kvtransfer/protocol/crc32c.h"
#include "tests/e2e/crowd_rig.h"
#include "tests/e2e/mutated_wires.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/kvtransfer/message_mutator.h"
#include "tests/proto/every_message.h"
#include "tests/support/bare_control.h"
#include "tests/support/control_bytes.h"
#include "tests/support/mutated_message.h"

namespace baton {
namespace {

constexpr Incarnation kMad = (1ull << 63) | 77;
constexpr char kAttach[] = "/baton.wire.Control/Attach";

ClusterKey RigKey() {
  ClusterKey key;
  key.fill(0x11);
  return key;
}

// The cluster, a stream of somebody else that is asked again and again, and a look at its health.
class Cluster {
 public:
  Cluster() {
    auto started = CrowdRig::Start(std::chrono::microseconds(500));
    INFO(started.status().ToString());
    REQUIRE(started.ok());
    rig_ = *std::move(started);
    control_port_ = rig_->router->control_port();
    health_.emplace(rig_->router->url().port);
    expected_ = Ask();
    REQUIRE(expected_.find("\"finish_reason\":\"length\"") != std::string::npos);
    other_ = std::thread([this] {
      while (!is_over_) {
        const absl::Time begin = absl::Now();
        const std::string text = Ask();
        ++n_asked_;
        const absl::Duration took = absl::Now() - begin;
        std::lock_guard lock(mutex_);
        longest_ = std::max(longest_, took);
        if (text != expected_ && wrong_.empty()) wrong_ = text;
      }
    });
  }
  ~Cluster() { StopAsking(); }

  int control_port() const { return control_port_; }
  const Worker& worker(size_t i) const { return *rig_->workers[i]; }
  // Tells whether /health is 200 within the limit.
  bool IsHealthy(absl::Duration limit) {
    health_->received.clear();
    const absl::Time begin = absl::Now();
    const bool is_good = health_->Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") &&
                         health_->ReadUntil("{\"status\":\"ok\"}", limit) &&
                         health_->received.starts_with("HTTP/1.1 200");
    slowest_ = std::max(slowest_, absl::Now() - begin);
    return is_good;
  }
  void Finish(const char* what, int n_sent, int n_ended) {
    StopAsking();
    WARN(n_sent << " " << what << ", " << n_ended << " connections ended by them; the slowest look "
                << "at health took " << slowest_ << ", the longest of " << n_asked_
                << " requests of others " << longest_);
    CHECK(wrong_ == "");
    CHECK(n_asked_ > 0);
    CHECK(n_ended > 0);
    REQUIRE(WaitUntil(absl::Seconds(20), [&] {
      return MetricSum(rig_->router->client(), "baton_workers") == 3 && Ask() == expected_;
    }));
    rig_->workers.clear();  // CHECKs that every page is back
    const auto status = rig_->router->Terminate();
    REQUIRE(status.ok());
    CHECK(*status == 0);
  }

 private:
  // The text of a stream, or what went wrong.
  std::string Ask() {
    std::string text, prompt;
    for (int i = 0; i < 150; ++i) prompt += " duck";
    const auto response = rig_->router->client().Post(
        "/v1/completions", StreamBody(prompt, 40), [&](std::string_view data, absl::Time) {
          text += std::string(data.substr(std::min(data.size(), data.find("\"choices\""))));
          return data != "[DONE]";
        });
    return response.ok() ? text : std::string(response.status().message());
  }
  void StopAsking() {
    is_over_ = true;
    if (other_.joinable()) other_.join();
  }

  std::unique_ptr<CrowdRig> rig_;
  int control_port_ = 0;
  std::optional<RawClient> health_;
  std::string expected_;
  absl::Duration slowest_;
  std::mutex mutex_;
  std::string wrong_;       // guarded by mutex_
  absl::Duration longest_;  // guarded by mutex_
  std::atomic<bool> is_over_ = false;
  std::atomic<int> n_asked_ = 0;
  std::thread other_;
};

// A stream of a member, whose messages are any bytes.
class MadStream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  MadStream(const std::shared_ptr<grpc::Channel>& channel, const ClusterKey& key) : stub_(channel) {
    context_.AddMetadata(kWorkerProofKey, FreshProof(channel, key, kMad));
    stub_.PrepareBidiStreamingCall(&context_, kAttach, {}, this);
    AddHold();  // the call does not end while it may be written to
    StartRead(&read_);
    StartCall();
  }
  ~MadStream() override {
    context_.TryCancel();
    RemoveHold();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_done_; });
  }
  // Sends the bytes and waits until they are on their way. False: the stream has ended, or is to
  // end because the router gives it work, which is others'.
  bool Send(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    write_ = grpc::ByteBuffer(&slice, 1);
    std::unique_lock lock(mutex_);
    if (is_done_ || has_work_ || !can_write_) return false;
    is_writing_ = true;
    StartWrite(&write_);
    changed_.wait(lock, [this] { return !is_writing_; });
    return can_write_ && !has_work_;
  }

  void OnReadDone(bool ok) override {
    std::lock_guard lock(mutex_);
    has_work_ |= ok;
    can_write_ &= ok;
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    is_writing_ = false;
    can_write_ &= ok;
    changed_.notify_all();
  }
  void OnDone(const grpc::Status&) override {
    std::lock_guard lock(mutex_);
    is_done_ = true;
    can_write_ = false;
    changed_.notify_all();
  }

 private:
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer read_, write_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false, has_work_ = false, is_writing_ = false, can_write_ = true;
};

// A worker that others' requests do not fit, so that what it says is of none of them.
WorkerAnnounce MadAnnounce(const Worker& good) {
  WorkerAnnounce announce = good.announce();
  announce.incarnation = announce.transfer.incarnation = kMad;
  announce.name = "mad";
  announce.role = Role::kDecode;
  announce.pages_total = 1;
  announce.clock_us = absl::ToUnixMicros(MonotonicNow());
  return announce;
}

void CheckStrangers(Cluster* cluster, uint64_t first_seed, int n, absl::Duration hang) {
  const std::string report = SerializeReport(EveryEvent());
  int n_ended = 0;
  for (int i = 0; i < n; ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    INFO("seed " << seed);
    RawClient client(cluster->control_port());
    REQUIRE(client.is_open());
    client.Send(CallMutator(seed, {kAttach}, report).Next());
    client.HalfClose();
    n_ended += client.ReadToEnd(hang);
    REQUIRE(cluster->IsHealthy(hang));
  }
  CHECK(n_ended == n);
}

// Returns the number of streams that ended.
int CheckMember(Cluster* cluster, uint64_t first_seed, int n, absl::Duration hang) {
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", cluster->control_port()),
                                           grpc::InsecureChannelCredentials());
  std::mt19937_64 random(first_seed);
  const WorkerReport announced = {.events = {MadAnnounce(cluster->worker(2))}};
  const std::vector<WorkerEvent> events = EveryEvent().events;
  std::unique_ptr<MadStream> stream;
  int n_ended = 0;
  for (int i = 0; i < n; ++i) {
    INFO("input " << i << " of seed " << first_seed);
    if (stream == nullptr) {
      stream = std::make_unique<MadStream>(channel, RigKey());
      if (i % 3 != 0) stream->Send(SerializeReport(announced));
    }
    wire::WorkerReport report = Encoded(WorkerReport{.events = {events[random() % events.size()]}});
    std::string bytes;
    if (random() % 2 == 0) {
      const auto mutations = MutationsOf(report);
      mutations[random() % mutations.size()](&report);
      bytes = report.SerializeAsString();
    } else {
      bytes = MutatedBytes(report, &random);
    }
    if (!stream->Send(bytes)) {
      stream.reset();
      ++n_ended;
    }
    REQUIRE(cluster->IsHealthy(hang));
  }
  return n_ended;
}

// Somebody with the cluster key on the KV wire.
class KvAttacker {
 public:
  KvAttacker(uint64_t seed, const Worker& victim)
      : victim_(victim), mutator_(seed, kMad), payload_(1'000'000, std::byte{0x66}) {
    auto made = MakeUcxLink("127.0.0.1");
    INFO(made.status().ToString());
    REQUIRE(made.ok());
    link_ = *std::move(made);
    link_->Register(payload_.data(), static_cast<int64_t>(payload_.size()));
  }

  int n_ended() const { return n_ended_; }
  // Sends one changed message or chunk, over a connection that is made anew if it has ended.
  void Attack(uint64_t number) {
    if (connection_ == 0) Connect(number % 4 != 0);
    const std::vector<Ticket> tickets = {TicketOf(number, 2, 2), TicketOf(number / 3, 3, 4),
                                         TicketOf(number / 7, 1, 0)};
    if (mutator_.Below(3) == 0) {
      wire::ChunkHeader header = mutator_.Header(tickets);
      if (header.length > payload_.size()) header.length = 400;
      if (mutator_.Below(4) != 0)
        header.payload_crc =
            ExtendCrc32c(wire::IdentityCrc(header), payload_.data(), header.length);
      link_->Announce(connection_, ++operation_, wire::Encode(header), payload_.data(),
                      header.length);
    } else {
      link_->Send(connection_, mutator_.Change(wire::Encode(mutator_.Message(tickets, true))));
    }
    Poll();
  }

 private:
  Ticket TicketOf(uint64_t number, int32_t kv_pages, int32_t promise_pages) const {
    Ticket ticket{.id = {number + 1, ~number},
                  .epoch = 1,
                  .request_id = 1000 + number,
                  .source = kMad,
                  .sink = victim_.announce().incarnation,
                  .promise = {number + 1, ~number},
                  .kv_pages = kv_pages,
                  .promise_pages = promise_pages,
                  .n_pages = kv_pages,
                  .expires_us = absl::ToUnixMicros(MonotonicNow() + absl::Hours(1))};
    SignTicket(RigKey(), ticket);
    return ticket;
  }
  void Connect(bool greets) {
    connection_ = link_->Connect(victim_.announce().transfer.address);
    challenge_.clear();
    const absl::Time end = absl::Now() + absl::Seconds(5);
    for (Poll(); challenge_.empty() && connection_ != 0 && absl::Now() < end; Poll()) {
      pollfd wake{link_->wake_fd(), POLLIN, 0};
      if (link_->Arm()) ::poll(&wake, 1, 10);
    }
    REQUIRE((!challenge_.empty() || connection_ == 0));
    if (!greets || connection_ == 0) return;
    const WorkerAnnounce& announce = victim_.announce();
    wire::Hello hello{.from = kMad,
                      .to = announce.incarnation,
                      .nonce = {9},
                      .key_id = KeyIdOf(RigKey()),
                      .identity = {.model_fingerprint = announce.model_fingerprint,
                                   .numerics_id = announce.numerics_id,
                                   .layout_id = announce.layout_id}};
    std::vector<int64_t> planes;
    for (const KvPlane& plane : victim_.backend().kv_layout().planes) planes.push_back(plane.bytes);
    hello.identity.n_planes = static_cast<uint32_t>(planes.size());
    hello.identity.plane_digest = Crc32c(planes.data(), planes.size() * sizeof planes[0]);
    wire::Sign(RigKey(), challenge_, hello);
    const std::string bytes = wire::Encode(hello);
    link_->Send(connection_, mutator_.Below(8) == 0 ? mutator_.Change(bytes) : bytes);
  }
  void Poll() {
    std::vector<LinkEvent> events;
    link_->Poll(&events);
    for (const LinkEvent& event : events) {
      const auto* lost = std::get_if<ConnectionLost>(&event);
      if (lost != nullptr && lost->connection == connection_) {
        connection_ = 0;
        ++n_ended_;
      }
      const auto* arrived = std::get_if<MessageArrived>(&event);
      if (arrived == nullptr || arrived->connection != connection_) continue;
      const auto message = wire::Decode(arrived->bytes);
      REQUIRE(message.ok());
      if (std::holds_alternative<wire::Challenge>(*message)) challenge_ = arrived->bytes;
      is_welcome_ |= std::holds_alternative<wire::HelloAck>(*message) &&
                     std::get<wire::HelloAck>(*message).code == 0;
    }
  }

 public:
  bool was_welcome() const { return is_welcome_; }

 private:
  const Worker& victim_;
  MessageMutator mutator_;
  std::vector<std::byte> payload_;
  std::unique_ptr<Link> link_;
  ConnectionId connection_ = 0;  // 0: none
  OperationId operation_ = 0;
  std::string challenge_;
  bool is_welcome_ = false;
  int n_ended_ = 0;
};

void CheckControl(uint64_t first_seed, int n, absl::Duration hang) {
  Cluster cluster;
  CheckStrangers(&cluster, first_seed, n / 4, hang);
  const int n_ended = CheckMember(&cluster, first_seed, n - n / 4, hang);
  cluster.Finish("inputs on the control wire", n, n_ended);
}

void CheckKv(uint64_t first_seed, int n, absl::Duration hang) {
  Cluster cluster;
  int n_ended = 0;
  for (const size_t victim : {2, 0}) {  // decode and prefill
    KvAttacker attacker(first_seed + victim, cluster.worker(victim));
    for (int i = 0; i < n / 2; ++i) {
      INFO("input " << i << " of seed " << first_seed << " to worker " << victim);
      attacker.Attack(static_cast<uint64_t>(i));
      REQUIRE(cluster.IsHealthy(hang));
    }
    CHECK(attacker.was_welcome());
    n_ended += attacker.n_ended();
  }
  cluster.Finish("inputs on the KV wire", n, n_ended);
}

// Tests run beside others, on machines that may stand still for a moment.
TEST_CASE("1,000 mutated inputs on the control wire") { CheckControl(1, 1'000, absl::Seconds(5)); }
TEST_CASE("1,000 mutated inputs on the KV wire") { CheckKv(1, 1'000, absl::Seconds(5)); }

TEST_CASE("20,000 mutated inputs on the control wire", "[.][20000]") {
  CheckControl(100'000, 20'000, absl::Seconds(1));
}
TEST_CASE("20,000 mutated inputs on the KV wire", "[.][20000]") {
  CheckKv(100'000, 20'000, absl::Seconds(1));
}

}  // namespace
}  // namespace baton
