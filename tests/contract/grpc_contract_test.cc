// The behaviour of gRPC (1.51) that Baton's control stream relies on: the callback API, one
// bidirectional stream per pair with one write in flight, and its cancellation, deadline, loss of
// the peer, flow control, order, latency and clean end.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "control.grpc.pb.h"
#include "proto/control_channel.h"
#include "tests/support/bare_control.h"
#include "tests/support/control_ends.h"

namespace baton {
namespace {

using Catch::Contains;

// A bare client stream without the framing of ControlClient. Reactions only record.
class BareStream : public grpc::ClientBidiReactor<wire::WorkerReport, wire::RouterMessages> {
 public:
  explicit BareStream(const std::string& address, grpc::ClientContext* context,
                      const ClusterKey& key = {})
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        stub_(wire::Control::NewStub(channel_)),
        context_(context) {
    context_->AddMetadata(kWorkerProofKey, FreshProof(channel_, key, 5));
  }
  void Start() {
    stub_->async()->Attach(context_, this);
    StartRead(&read_);
    AddHold();  // writes start outside reactions
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&read_);
    Note([&] { ++(ok ? reads_ : failed_reads_); });
  }
  void OnWriteDone(bool ok) override {
    Note([&] { ++(ok ? writes_ : failed_writes_); });
  }
  void OnDone(const grpc::Status& status) override {
    Note([&] {
      status_ = status;
      done_ = true;
    });
  }
  bool Wait(auto condition, absl::Duration limit = absl::Seconds(10)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(limit), condition);
  }
  // Waits until the write has ended.
  bool Write(const wire::WorkerReport& report) {
    const int before = writes_ + failed_writes_;
    StartWrite(&report);
    Wait([&] { return writes_ + failed_writes_ > before; });
    return failed_writes_ == 0;
  }

  wire::RouterMessages read_;
  int reads_ = 0, failed_reads_ = 0;
  std::atomic<int> writes_ = 0, failed_writes_ = 0;
  bool done_ = false;
  grpc::Status status_;

 private:
  void Note(auto change) {
    std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<wire::Control::Stub> stub_;
  grpc::ClientContext* const context_;
};

wire::WorkerReport LoadReport(int n_events = 1) {
  wire::WorkerReport report;
  report.mutable_engine();
  for (int i = 0; i < n_events; ++i) {
    wire::WorkerLoad* const load = report.add_events()->mutable_load();
    load->set_decode_rows(1 + i);
    load->mutable_prefill_cost()->set_n_layers(1);
    load->mutable_step_cost();
  }
  return report;
}

}  // namespace

TEST_CASE("cancelling a call ends every open operation, and OnDone comes once, last") {
  RouterEnd router;
  grpc::ClientContext context;
  BareStream stream(router.address(), &context);
  stream.Start();
  REQUIRE(stream.Write(LoadReport()));
  REQUIRE(router.Next<WorkerConnected>().has_value());
  REQUIRE(router.Next<WorkerReported>().has_value());
  context.TryCancel();
  REQUIRE(stream.Wait([&] { return stream.failed_reads_ == 1; }));
  CHECK_FALSE(stream.done_);  // a hold is open, so writes are still allowed, without effect
  CHECK_FALSE(stream.Write(LoadReport()));
  stream.RemoveHold();
  REQUIRE(stream.Wait([&] { return stream.done_; }));
  CHECK(stream.status_.error_code() == grpc::StatusCode::CANCELLED);
  REQUIRE(router.Next<WorkerLost>().has_value());  // the server got the loss
}

TEST_CASE("a deadline ends the stream on both sides") {
  RouterEnd router;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  BareStream stream(router.address(), &context);
  stream.Start();
  stream.RemoveHold();
  REQUIRE(router.Next<WorkerConnected>().has_value());
  REQUIRE(router.Next<WorkerLost>().has_value());
  REQUIRE(stream.Wait([&] { return stream.done_; }));
  CHECK(stream.status_.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_CASE("a client that half-closes ends its stream") {
  RouterEnd router;
  grpc::ClientContext context;
  BareStream stream(router.address(), &context);
  stream.Start();
  REQUIRE(router.Next<WorkerConnected>().has_value());
  stream.StartWritesDone();
  stream.RemoveHold();
  REQUIRE(router.Next<WorkerLost>().has_value());
  REQUIRE(stream.Wait([&] { return stream.done_; }));
}

TEST_CASE("a call without proof of membership never reaches the router") {
  RouterEnd router({.key = {1}});
  grpc::ClientContext context;
  BareStream stream(router.address(), &context);  // another key
  stream.Start();
  stream.RemoveHold();
  REQUIRE(stream.Wait([&] { return stream.done_; }));
  CHECK(stream.status_.error_code() == grpc::StatusCode::UNAUTHENTICATED);
  CHECK_FALSE(router.Next<WorkerConnected>(absl::Milliseconds(50)).has_value());
}

TEST_CASE("flow control: what the reader does not read stops the writer, and nothing is lost") {
  RouterEnd router({.max_unread_reports = 2});
  grpc::ClientContext context;
  BareStream stream(router.address(), &context);
  stream.Start();
  const wire::WorkerReport report = LoadReport(10000);
  constexpr int kReports = 200;
  std::thread writer([&] {
    for (int i = 0; i < kReports; ++i) stream.Write(report);
  });
  REQUIRE(router.Next<WorkerConnected>().has_value());
  stream.Wait([] { return false; }, absl::Milliseconds(300));
  const int stopped_at = stream.writes_;
  CHECK(stopped_at < kReports / 2);  // most wait in the writer
  int got = 0;
  while (got < kReports && router.Next<WorkerReported>().has_value()) ++got;
  writer.join();
  CHECK(got == kReports);
  stream.RemoveHold();
  context.TryCancel();
  REQUIRE(stream.Wait([&] { return stream.done_; }));
}

TEST_CASE("a message beyond the size limit ends the stream with RESOURCE_EXHAUSTED") {
  RouterEnd router;
  grpc::ClientContext context;
  BareStream stream(router.address(), &context);
  stream.Start();
  wire::WorkerReport report;
  report.add_events()->mutable_part_ended()->set_message(std::string(33 << 20, 'x'));
  stream.Write(report);
  stream.RemoveHold();
  REQUIRE(stream.Wait([&] { return stream.done_; }));
  REQUIRE(router.Next<WorkerConnected>().has_value());
  CHECK(router.Next<WorkerLost>().has_value());
}

TEST_CASE("a peer process killed in the middle of traffic") {
  auto peer = std::make_unique<PeerProcess>(std::vector<std::string>{"serve"});
  WorkerEnd worker(absl::StrCat("127.0.0.1:", peer->ReadPort()), 5,
                   [](ControlClientOptions* o) { o->min_pause = absl::Hours(1); });
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  for (int i = 1; i <= 100; ++i) {
    if (i == 50) peer->Kill(SIGKILL);
    worker.Send({.events = {TokenOut{.request_id = 1, .position = i}}});
  }
  Epoch next = 1;  // messages before the end are a prefix, in order
  for (bool lost = false; !lost;) {
    const auto event = worker.events.NextAny();
    REQUIRE(event.has_value());
    lost = std::holds_alternative<RouterDisconnected>(*event);
    if (const auto* got = std::get_if<RouterMessages>(&*event))
      for (const RouterMessage& message : got->messages)
        CHECK(std::get<CancelRequest>(message).epoch == next++);
  }
}

// Callback threads of gRPC 1.51 sleep 100 ms after a second without events
// (completion_queue_cc.cc); without ControlClient's ticks a quarter of these round trips take 20 to
// 100 ms.
TEST_CASE("the first message after idle is as fast as any") {
  PeerProcess peer({"serve"});
  WorkerEnd worker(absl::StrCat("127.0.0.1:", peer.ReadPort()), 5);
  REQUIRE(worker.events.Next<RouterConnected>().has_value());
  const auto round_trip = [&](int i) {
    const absl::Time start = absl::Now();
    REQUIRE(worker.Send({.events = {TokenOut{.request_id = 1, .position = i}}}));
    REQUIRE(worker.events.Next<RouterMessages>().has_value());
    return absl::Now() - start;
  };
  std::vector<absl::Duration> busy, idle;
  for (int i = 1; i <= 200; ++i) busy.push_back(round_trip(i));
  for (int i = 1; i <= 8; ++i) {
    absl::SleepFor(absl::Milliseconds(1000 + 13 * i));
    idle.push_back(round_trip(i));
  }
  std::sort(busy.begin(), busy.end());
  std::sort(idle.begin(), idle.end());
  WARN("round trip busy p50 " << absl::FormatDuration(busy[busy.size() / 2]) << " max "
                              << absl::FormatDuration(busy.back()) << "; after idle p50 "
                              << absl::FormatDuration(idle[idle.size() / 2]) << " max "
                              << absl::FormatDuration(idle.back()));
  // The bound allows for a loaded machine, where busy round trips are slow too.
  CHECK(idle[idle.size() * 3 / 4] <
        std::max(absl::Milliseconds(20), 4 * busy[busy.size() * 95 / 100]));
}

}  // namespace baton
