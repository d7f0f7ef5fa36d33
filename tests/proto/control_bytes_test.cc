// Any bytes on a real control stream of a peer that has proven the cluster key: it loses its stream
// at most, and another worker's goes on.
#include <grpcpp/generic/generic_stub.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "tests/proto/every_message.h"
#include "tests/support/bare_control.h"
#include "tests/support/control_bytes.h"
#include "tests/support/control_ends.h"
#include "tests/support/mutated_message.h"

namespace baton {
namespace {

constexpr Incarnation kMad = 5, kSound = 6;
constexpr int kStreams = 400;

// One stream on which bytes are sent as a message, from its proof to its end.
class RawStream {
 public:
  RawStream(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    context_.AddMetadata(kWorkerProofKey, FreshProof(channel, {}, kMad));
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    call_ = stub_.PrepareCall(&context_, "/baton.wire.Control/Attach", &queue_);
    call_->StartCall(Tag());
    Wait();
  }
  void Send(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), Tag());
    Wait();
  }
  grpc::Status End() {
    call_->WritesDone(Tag());
    Wait();
    grpc::Status status;
    call_->Finish(&status, Tag());
    Wait();
    return status;
  }

 private:
  void* Tag() { return this; }
  void Wait() {
    void* tag = nullptr;
    bool ok = false;
    REQUIRE(queue_.Next(&tag, &ok));
  }
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

}  // namespace

TEST_CASE("bytes that are no report end their own stream at most") {
  RouterEnd router;
  WorkerEnd sound(router.address(), kSound);
  router.AwaitWorker(kSound);
  REQUIRE(sound.events.Next<RouterConnected>().has_value());
  const auto channel = grpc::CreateChannel(router.address(), grpc::InsecureChannelCredentials());
  const wire::WorkerReport base = Encoded(EveryEvent());
  std::mt19937_64 random(31);
  int n_reports = 0;
  for (int run = 0; run < kStreams; ++run) {
    RawStream stream(channel);
    stream.Send(run % 16 == 0 ? std::string(random() % 100, '\xff') : MutatedBytes(base, &random));
    CHECK_FALSE(stream.End().ok());
    // The mad worker's events end with its loss; between them the sound one's may stand.
    REQUIRE(sound.Send({.events = {CachedPages{.number = 1}}}));
    for (bool lost = false, heard = false; !lost || !heard;) {
      const auto event = router.NextAny();
      REQUIRE(event.has_value());
      if (const auto* end = std::get_if<WorkerLost>(&*event)) {
        REQUIRE(end->worker == kMad);
        lost = true;
      } else if (const auto* reported = std::get_if<WorkerReported>(&*event)) {
        heard |= reported->worker == kSound;
        n_reports += reported->worker == kMad;
      }
    }
  }
  CHECK(n_reports > 0);
  CHECK(n_reports < kStreams);
  WARN(n_reports << " of " << kStreams << " could be read");
  CHECK(sound.events.size() == 0);
}

}  // namespace baton
