#include "proto/control_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/log.h"
#include "control.grpc.pb.h"
#include "proto/control_channel.h"
#include "proto/control_codec.h"
#include "proto/membership.h"

namespace baton {
namespace {

// A gRPC callback thread that sees no event for a second sleeps 100 ms before it polls again
// (completion_queue_cc.cc of 1.51), and a message arriving meanwhile waits: first tokens after an
// idle second would come up to 100 ms late. So a quiet stream carries an empty report at this
// interval; the report also tells the router that a worker in a long step lives.
constexpr std::chrono::milliseconds kTick(400);

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::UnavailableError("the router ended the stream");
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  for (const ChannelArgument& argument : ControlChannelArguments())
    arguments.SetInt(argument.name, argument.value);
  // Pauses between attempts are made here: no back-off shared with earlier channels, and a router
  // that accepts but stays silent is given up after 2 s.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // ignore proxies of the environment
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

// One attempt. Lives on the dialling thread's stack until OnDone, which comes once and last.
class ControlClient::Stream
    : public grpc::ClientBidiReactor<wire::WorkerReport, wire::RouterMessages> {
 public:
  explicit Stream(ControlClient* client)
      : client_(client),
        options_(client->options_),
        proven_{.incarnation = client->options_.announce.incarnation, .nonce = RandomId()},
        channel_(OpenChannel(options_.router_address)),
        stub_(wire::Control::NewStub(channel_)) {
    context_.AddMetadata(kWorkerProofKey,
                         WorkerProof(options_.key, proven_.incarnation, proven_.nonce));
  }

  void Start() {
    stub_->async()->Attach(&context_, this);
    WorkerAnnounce announce = options_.announce;
    announce.clock_us = absl::ToUnixMicros(MonotonicNow());
    AppendReport({.events = {std::move(announce)}}, &write_);
    writing_ = true;
    StartWrite(&write_);
    StartCall();
  }

  void OnReadInitialMetadataDone(bool ok) override {
    if (!ok) return;  // OnDone reports the reason
    if (!IsOurRouter())
      return GiveUp(absl::UnauthenticatedError(
          absl::StrFormat("%s is a router with another cluster key", options_.router_address)));
    {
      std::lock_guard lock(client_->mutex_);
      open_ = accepted_ = !client_->stopping_;
      if (!accepted_) return;
    }
    if (!options_.on_event(RouterConnected{})) {
      accepted_ = false;
      return GiveUp(absl::ResourceExhaustedError("the worker's mailbox is full"));
    }
    StartRead(&read_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) {
      std::lock_guard lock(client_->mutex_);
      open_ = false;  // no more StartWrite: the call may end at any moment
      return;
    }
    absl::StatusOr<DecodedMessages> decoded = DecodeMessages(read_);
    if (!decoded.ok()) return GiveUp(decoded.status());
    if (!decoded->unreadable.empty()) SendBack(decoded->unreadable);
    if (!decoded->messages.empty() &&
        !options_.on_event(RouterMessages{std::move(decoded->messages)}))
      return GiveUp(absl::ResourceExhaustedError("the worker's mailbox is full"));
    StartRead(&read_);
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(client_->mutex_);
    writing_ = false;
    if (!ok) open_ = false;
    if (!unsent_.events().empty()) WriteLocked();
  }
  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(client_->mutex_);
    open_ = false;
    if (reason_.ok()) reason_ = FromGrpc(status);
    done_ = true;
    client_->changed_.notify_all();  // under the lock: the dialler destroys this object right
                                     // afterwards
  }

  bool SendLocked(const WorkerReport& report) {
    if (!open_) return false;
    // All that waits travels as one message.
    const size_t events = static_cast<size_t>(unsent_.events_size()) + report.events.size();
    unsent_bytes_ += AppendReport(report, &unsent_);
    if (events > std::min(options_.max_unsent_events, ControlLimits::kEventsPerReport) ||
        unsent_bytes_ > ControlLimits::kMessageBytes) {
      GiveUpLocked(absl::ResourceExhaustedError(
          absl::StrFormat("the router does not read: %d events of up to %d bytes wait for it",
                          events, unsent_bytes_)));
      return false;
    }
    WriteLocked();
    return true;
  }
  // Writes all that waits, or an empty report.
  void WriteLocked() {
    if (!open_ || writing_) return;
    write_.Swap(&unsent_);
    unsent_.Clear();
    unsent_bytes_ = 0;
    writing_ = true;
    StartWrite(&write_);
  }
  void CancelLocked() {
    open_ = false;
    context_.TryCancel();
  }

  // Read by the dialler under the mutex, or after done_.
  bool done_ = false;
  bool accepted_ = false;  // RouterConnected was delivered
  absl::Status reason_;

 private:
  bool IsOurRouter() {
    const auto& metadata = context_.GetServerInitialMetadata();
    const auto found = metadata.find(kRouterProofKey);
    return found != metadata.end() && std::string(found->second.data(), found->second.size()) ==
                                          RouterProof(options_.key, proven_);
  }
  // The worker never sees these messages: their parts end here.
  void SendBack(const std::vector<PartEnded>& unreadable) {
    for (const PartEnded& part : unreadable)
      LogError("request %016x: the router's message about it cannot be read: %s", part.request_id,
               part.message);
    std::lock_guard lock(client_->mutex_);
    SendLocked({.events = {unreadable.begin(), unreadable.end()}});
  }
  void GiveUp(const absl::Status& reason) {
    std::lock_guard lock(client_->mutex_);
    GiveUpLocked(reason);
  }
  void GiveUpLocked(const absl::Status& reason) {
    if (reason_.ok()) reason_ = reason;
    CancelLocked();
  }

  ControlClient* const client_;
  const ControlClientOptions& options_;
  const ProvenWorker proven_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<wire::Control::Stub> stub_;
  grpc::ClientContext context_;
  wire::RouterMessages read_;
  // Guarded by client_->mutex_.
  bool open_ = false;  // accepted, not ending: StartWrite is allowed (a read is outstanding)
  bool writing_ = false;
  wire::WorkerReport unsent_, write_;
  size_t unsent_bytes_ = 0;  // bound of its encoded size
};

ControlClient::ControlClient(ControlClientOptions options)
    : options_(std::move(options)), dialler_([this] { Dial(); }) {}

ControlClient::~ControlClient() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (stream_ != nullptr) stream_->CancelLocked();
    changed_.notify_all();
  }
  dialler_.join();
}

bool ControlClient::Send(const WorkerReport& report) {
  if (report.events.empty()) return true;
  std::lock_guard lock(mutex_);
  return stream_ != nullptr && stream_->SendLocked(report);
}

bool ControlClient::Pause(absl::Duration pause) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(pause), [this] { return stopping_; });
  return !stopping_;
}

// Logs once per reason, not once per attempt.
void ControlClient::LogRefusal(const absl::Status& reason) {
  if (reason.code() == last_refusal_.code()) return;
  last_refusal_ = reason;
  if (reason.code() == absl::StatusCode::kUnavailable)
    LogInfo("waiting for the router at %s", options_.router_address);
  else
    LogWarn("router %s refuses this worker: %s", options_.router_address,
            std::string(reason.message()));
}

void ControlClient::Dial() {
  absl::Duration pause = options_.min_pause;
  do {
    // A stream that ended soon after it was accepted (an unfit worker, say) counts as a failure.
    const absl::Time start = MonotonicNow();
    const bool lasted = RunStream() && MonotonicNow() - start > options_.max_pause;
    pause = lasted ? options_.min_pause : std::min(2 * pause, options_.max_pause);
  } while (Pause(pause));
}

bool ControlClient::RunStream() {
  Stream stream(this);
  {
    std::unique_lock lock(mutex_);
    if (stopping_) return false;
    stream_ = &stream;
    stream.Start();
    while (!changed_.wait_for(lock, kTick, [&stream] { return stream.done_; }))
      stream.WriteLocked();
    stream_ = nullptr;
    if (stopping_) return stream.accepted_;
  }
  if (!stream.accepted_) {
    LogRefusal(stream.reason_);
    return false;
  }
  last_refusal_ = absl::OkStatus();
  LogWarn("stream to router %s ended: %s", options_.router_address,
          std::string(stream.reason_.message()));
  while (!options_.on_event(RouterDisconnected{stream.reason_}))
    if (!Pause(options_.min_pause)) break;
  return true;
}

}  // namespace baton
