#include "proto/control_client.h"

#include <arpa/inet.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/log.h"
#include "control.grpc.pb.h"
#include "proto/control_channel.h"
#include "proto/control_codec.h"
#include "proto/control_credentials.h"
#include "proto/membership.h"
#include "proto/request_owner.h"
#include "proto/unix_control.h"

namespace baton {
namespace {

// A gRPC callback thread that sees no event for a second sleeps 100 ms before it polls again
// (completion_queue_cc.cc of 1.51), and a message arriving meanwhile waits: first tokens after an
// idle second would come up to 100 ms late. So a quiet stream carries an empty report at this
// interval; the report also tells the router that a worker in a long step lives, and how long its
// engine has been in that step.
constexpr std::chrono::milliseconds kTick(400);

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::UnavailableError("the router ended the stream");
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

// A router that has not accepted a worker by then is dialled anew.
constexpr absl::Duration kAnswerLimit = absl::Seconds(10);

// An address that is a number needs no resolver, whose c-ares leaks each time that it is asked
// anew.
std::string TargetOf(const std::string& address) {
  in_addr number{};
  const std::string host = address.substr(0, address.rfind(':'));
  if (::inet_pton(AF_INET, host.c_str(), &number) == 1) return "ipv4:" + address;
  return address.starts_with('[') ? "ipv6:" + address : address;
}

// Error: nobody listens on the Unix socket, or somebody who is not to be trusted.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(
    const std::string& address, const std::shared_ptr<const ClusterCertificate>& certificate) {
  grpc::ChannelArguments arguments;
  for (const ChannelArgument& argument : ControlChannelArguments())
    arguments.SetInt(argument.name, argument.value);
  // Pauses between attempts are made here: no back-off shared with earlier channels, and a router
  // that accepts but stays silent is given up after 2 s.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // ignore proxies of the environment
  if (IsUnixAddress(address)) {
    ASSIGN_OR_RETURN(const int socket, DialUnixControl(address));
    return grpc::CreateCustomInsecureChannelFromFd("router", socket, arguments);
  }
  return grpc::CreateCustomChannel(TargetOf(address), ChannelCredentialsOf(certificate), arguments);
}

}  // namespace

// One call: the first asks for a challenge and is refused with it, the second answers it and is the
// stream. Lives on the dialling thread's stack until OnDone, which comes once and last.
class ControlClient::Stream
    : public grpc::ClientBidiReactor<wire::WorkerReport, wire::RouterMessages> {
 public:
  // challenge: 0 asks for one, and for the router's id.
  Stream(ControlClient* client, const std::shared_ptr<grpc::Channel>& channel, uint64_t challenge,
         std::optional<RouterId> router)
      : router_(router),
        client_(client),
        options_(client->options_),
        proven_{.incarnation = client->options_.announce.incarnation,
                .nonce = RandomId(),
                .challenge = challenge},
        stub_(wire::Control::NewStub(channel)) {
    if (challenge != 0) context_.AddMetadata(kWorkerProofKey, WorkerProof(options_.key, proven_));
  }

  void Start() {
    stub_->async()->Attach(&context_, this);
    if (proven_.challenge != 0) {
      WorkerAnnounce announce = options_.announce;
      announce.clock_us = absl::ToUnixMicros(MonotonicNow());
      AppendReport({.events = {std::move(announce)}, .engine = EngineNow()}, &write_);
      writing_ = true;
      StartWrite(&write_);
    }
    StartCall();
  }

  void OnReadInitialMetadataDone(bool ok) override {
    if (!ok || proven_.challenge == 0) return;  // OnDone reports the reason
    if (!IsOurRouter())
      return GiveUp(absl::UnauthenticatedError(
          absl::StrFormat("%s is no router, or has another cluster key", options_.router_address)));
    {
      std::lock_guard lock(client_->mutex_);
      open_ = accepted_ = !client_->stopping_;
      if (!accepted_) return;
    }
    if (!options_.on_event(RouterConnected{*router_, name()})) {
      std::lock_guard lock(client_->mutex_);
      accepted_ = false;
      return GiveUpLocked(absl::ResourceExhaustedError("the worker's mailbox is full"));
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
    if (const absl::Status own = CheckOwner(decoded->messages, *router_); !own.ok())
      return GiveUp(own);
    if (!decoded->unreadable.empty()) SendBack(decoded->unreadable);
    if (!decoded->messages.empty() &&
        !options_.on_event(RouterMessages{std::move(decoded->messages), *router_}))
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
    const auto& metadata = context_.GetServerTrailingMetadata();
    if (const auto given = metadata.find(kChallengeKey); given != metadata.end())
      given_ = ParseChallenge({given->second.data(), given->second.size()});
    if (const auto id = metadata.find(kRouterIdKey); id != metadata.end() && !router_)
      router_ = ParseRouterId({id->second.data(), id->second.size()});
    done_ = true;
    client_->changed_.notify_all();  // under the lock: the dialler destroys this object right
                                     // afterwards
  }

  uint64_t name() const { return proven_.nonce; }  // random: no other stream's
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
    AppendReport({.engine = EngineNow()}, &write_);
    writing_ = true;
    StartWrite(&write_);
  }
  void CancelLocked() {
    open_ = false;
    context_.TryCancel();
  }
  void GiveUpLocked(const absl::Status& reason) {
    if (reason_.ok()) reason_ = reason;
    CancelLocked();
  }

  // Read by the dialler under the mutex, or after done_.
  bool done_ = false;
  uint64_t given_ = 0;  // the router's challenge; 0: none
  std::optional<RouterId> router_;
  bool accepted_ = false;  // RouterConnected was delivered
  absl::Status reason_;

 private:
  bool IsOurRouter() {
    const auto& metadata = context_.GetServerInitialMetadata();
    const auto found = metadata.find(kRouterProofKey);
    const std::string proof = RouterProof(options_.key, proven_);
    return found != metadata.end() && found->second.size() == proof.size() &&
           CRYPTO_memcmp(found->second.data(), proof.data(), proof.size()) == 0;
  }
  EngineTurn EngineNow() const {
    return options_.engine_turn ? options_.engine_turn() : EngineTurn();
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

  ControlClient* const client_;
  const ControlClientOptions& options_;
  const ProvenWorker proven_;
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
    : options_(std::move(options)),
      certificate_(options_.certificate),
      dialler_([this] { Dial(); }) {}

ControlClient::~ControlClient() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (stream_ != nullptr) stream_->CancelLocked();
    changed_.notify_all();
  }
  dialler_.join();
}

bool ControlClient::Send(uint64_t stream, const WorkerReport& report) {
  if (report.events.empty()) return true;
  std::lock_guard lock(mutex_);
  return stream_ != nullptr && stream_->name() == stream && stream_->SendLocked(report);
}

void ControlClient::SetWanted(bool wanted) {
  std::lock_guard lock(mutex_);
  wanted_ = wanted;
}

bool ControlClient::IsOver() {
  std::lock_guard lock(mutex_);
  return over_;
}

bool ControlClient::MayDial() {
  std::lock_guard lock(mutex_);
  over_ = stopping_ || !wanted_;
  return !over_;
}

bool ControlClient::Pause(absl::Duration pause) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(pause), [this] { return stopping_; });
  return !stopping_;
}

// Logs once per reason, not once per attempt.
void ControlClient::LogRefusal(const absl::Status& reason) {
  if (reason == last_refusal_) return;
  last_refusal_ = reason;
  if (reason.code() == absl::StatusCode::kUnavailable)
    LogInfo("waiting for the router at %s: %s", options_.router_address,
            std::string(reason.message()));
  else if (absl::IsAlreadyExists(reason))
    LogInfo("not dialling %s: %s", options_.router_address, std::string(reason.message()));
  else
    LogWarn("router %s refuses this worker: %s", options_.router_address,
            std::string(reason.message()));
}

void ControlClient::Dial() {
  absl::Duration pause = options_.min_pause;
  while (MayDial()) {
    // A stream that ended soon after it was accepted (an unfit worker, say) counts as a failure.
    const absl::Time start = MonotonicNow();
    const bool lasted = RunStream() && MonotonicNow() - start > options_.max_pause;
    pause = lasted ? options_.min_pause : std::min(2 * pause, options_.max_pause);
    // An address whose router has another stream matters once that one cannot be reached, or when
    // another router has it.
    Pause(absl::IsAlreadyExists(last_refusal_) ? 10 * options_.max_pause : pause);
  }
}

bool ControlClient::RunToEnd(Stream* stream) {
  const absl::Time limit = MonotonicNow() + kAnswerLimit;
  std::unique_lock lock(mutex_);
  if (stopping_) return false;
  stream_ = stream;
  stream->Start();
  while (!changed_.wait_for(lock, kTick, [stream] { return stream->done_; })) {
    stream->WriteLocked();
    if (!stream->accepted_ && MonotonicNow() > limit)
      stream->GiveUpLocked(absl::DeadlineExceededError("it does not answer"));
  }
  stream_ = nullptr;
  return !stopping_;
}

void ControlClient::RereadCertificate() {
  if (certificate_ == nullptr) return;
  auto next = certificate_->Reload();
  if (next.ok()) {
    certificate_ = *std::move(next);
  } else if (next.status() != last_bad_files_) {
    LogError("the cluster's new certificate is refused, the one before stays: %s",
             std::string(next.status().message()));
  }
  last_bad_files_ = next.status();
}

bool ControlClient::RunStream() {
  RereadCertificate();
  const auto channel = OpenChannel(options_.router_address, certificate_);
  if (!channel.ok()) {
    LogRefusal(channel.status());
    return false;
  }
  Stream asks(this, *channel, 0, {});
  const bool goes_on = RunToEnd(&asks);
  last_channel_ = *channel;
  if (!goes_on) return false;
  if (asks.given_ == 0) {
    LogRefusal(asks.reason_);
    return false;
  }
  if (!asks.router_) {
    LogRefusal(absl::FailedPreconditionError(
        "it does not tell its id: run the same version of baton everywhere"));
    return false;
  }
  const RouterId router = *asks.router_;
  if (options_.may_join) {
    if (const absl::Status may = options_.may_join(router); !may.ok()) {
      LogRefusal(may);
      return false;
    }
  }
  const absl::Cleanup leave = [this, router] {
    if (options_.left) options_.left(router);
  };
  Stream stream(this, *channel, asks.given_, router);
  if (!RunToEnd(&stream)) return stream.accepted_;
  if (!stream.accepted_) {
    LogRefusal(stream.reason_);
    return false;
  }
  last_refusal_ = absl::OkStatus();
  LogWarn("stream to router %s ended: %s", options_.router_address,
          std::string(stream.reason_.message()));
  while (!options_.on_event(RouterDisconnected{stream.reason_, router}))
    if (!Pause(options_.min_pause)) break;
  return true;
}

}  // namespace baton
