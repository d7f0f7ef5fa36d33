#include "proto/control_server.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/log.h"
#include "control.grpc.pb.h"
#include "proto/control_channel.h"
#include "proto/control_codec.h"
#include "proto/control_credentials.h"
#include "proto/join_refusals.h"
#include "proto/membership.h"
#include "proto/unix_control.h"

namespace baton {
namespace {

constexpr int kHandshakeMs = 10'000;
constexpr int kCallsPerConnection = 4;  // a worker has one at a time

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// Keeps away what libraries add to every server of the process, such as reflection.
class NoPlugins : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->clear();
  }
};

// A report that cannot be read may be of a worker of another version.
bool IsOfOtherVersion(const wire::WorkerReport& report) {
  const auto& events = report.events();
  return std::any_of(events.begin(), events.end(), [](const wire::WorkerEvent& event) {
    return event.has_announce() && event.announce().wire_version() != kControlVersion;
  });
}

// Answers a refused call.
class Refusal : public grpc::ServerBidiReactor<wire::WorkerReport, wire::RouterMessages> {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

// A peer that may have a stream.
struct Admitted {
  ProvenWorker proven;
  std::string role;  // in its certificate; empty: plain text
};

// One mutex guards all streams and the queue of events: reactions hold it for a few moves, and the
// front thread is the only one to contend.
class GrpcControlServer final : public ControlServer, private wire::Control::CallbackService {
 public:
  explicit GrpcControlServer(const ControlServerOptions& options)
      : options_(options), refusals_(std::make_shared<JoinRefusals>(options.on_refused)) {}
  ~GrpcControlServer() override { GrpcControlServer::Shutdown(); }

  absl::Status Listen();
  absl::Status ListenOnSocket();  // of a server that was built
  int port() const override { return port_; }
  void ReloadCertificate() override {
    if (tls_ != nullptr) tls_->Reload();
  }
  absl::Time certificate_expiry() const override {
    return tls_ == nullptr ? absl::UnixEpoch() : tls_->expiry();
  }
  bool TakeEvents(std::vector<ControlEvent>* out) override;
  void Send(Incarnation worker, std::vector<RouterMessage> messages) override;
  void Close(Incarnation worker, const absl::Status& reason) override;
  void Shutdown() override;

 private:
  class Stream;

  grpc::ServerBidiReactor<wire::WorkerReport, wire::RouterMessages>* Attach(
      grpc::CallbackServerContext* context) override;
  absl::StatusOr<Admitted> Admit(const grpc::CallbackServerContext& context, JoinFault* fault);
  Refusal* Challenge(grpc::CallbackServerContext* context);
  // Returns the address of a caller; of a Unix socket gRPC knows a descriptor only.
  std::string PeerOf(const grpc::CallbackServerContext& context) const {
    return IsUnixAddress(options_.address) ? options_.address : context.peer();
  }
  void Queue(ControlEvent event);                              // under mutex_
  void RetireLocked(Stream& stream, const absl::Status& why);  // under mutex_
  Stream* FindTaken(Incarnation worker);                       // under mutex_
  void Unlock(std::unique_lock<std::mutex>& lock);             // also wakes the consumer if needed

  const ControlServerOptions options_;
  const std::shared_ptr<JoinRefusals> refusals_;
  std::unique_ptr<ControlServerTls> tls_;  // null: plain text
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::unique_ptr<UnixControlListener> socket_;  // null: TCP

  std::mutex mutex_;
  Challenges challenges_;
  std::condition_variable no_streams_;
  bool shut_down_ = false;
  absl::flat_hash_map<Incarnation, Stream*> streams_;  // not retired
  int n_streams_ = 0;                                  // until OnDone
  int counted_streams_ = 0;                            // admitted and WorkerLost not yet taken
  std::vector<ControlEvent> events_;
  bool wake_needed_ = false;  // events_ was empty before the current event
};

// One worker's stream. Deletes itself in OnDone, which comes once, last, after Finish.
class GrpcControlServer::Stream
    : public grpc::ServerBidiReactor<wire::WorkerReport, wire::RouterMessages> {
 public:
  Stream(GrpcControlServer* server, grpc::CallbackServerContext* context, const Admitted& admitted)
      : server_(server),
        context_(context),
        worker_(admitted.proven.incarnation),
        role_(admitted.role) {}

  void OnReadDone(bool ok) override {
    absl::StatusOr<WorkerReport> report = absl::UnavailableError("the worker closed its stream");
    if (ok) report = DecodeReport(read_);
    if (ok && report.ok())
      report = Checked(*std::move(report));
    else if (ok && IsOfOtherVersion(read_))
      server_->refusals_->Add(JoinFault::kOtherVersion, context_->peer(),
                              std::string(report.status().message()));
    std::unique_lock lock(server_->mutex_);
    if (retired_) return;
    if (!report.ok()) {
      server_->RetireLocked(*this, report.status());
    } else {
      ++unread_;
      server_->Queue(WorkerReported{.worker = worker_, .report = *std::move(report)});
      reading_ = false;
      ReadMoreLocked();
    }
    server_->Unlock(lock);
  }
  void OnWriteDone(bool ok) override {
    std::unique_lock lock(server_->mutex_);
    writing_ = false;
    if (retired_) {
      FinishLocked();
    } else if (!ok) {
      server_->RetireLocked(*this, absl::UnavailableError("the stream to the worker broke"));
    } else {
      WriteMoreLocked();
    }
    server_->Unlock(lock);
  }
  void OnCancel() override {
    std::unique_lock lock(server_->mutex_);
    if (!retired_)
      server_->RetireLocked(*this, absl::UnavailableError("the connection to the worker was lost"));
    server_->Unlock(lock);
  }
  void OnDone() override {
    {
      std::lock_guard lock(server_->mutex_);
      // Under the lock: Shutdown may end the server as soon as it gets the lock.
      if (--server_->n_streams_ == 0) server_->no_streams_.notify_all();
    }
    delete this;
  }

  void ReadMoreLocked() {
    if (retired_ || reading_ || unread_ >= server_->options_.max_unread_reports) return;
    reading_ = true;
    StartRead(&read_);
  }
  void WriteMoreLocked() {
    if (retired_ || writing_ || unsent_.empty()) return;
    const size_t n = EncodeMessages(unsent_, &write_);
    unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(n));
    writing_ = true;
    StartWrite(&write_);
  }
  // Finish must not overtake a write in flight, and a peer that does not read would block that
  // write for ever: so the call is cancelled, the write fails, and OnWriteDone finishes.
  void FinishLocked() {
    if (writing_) {
      context_->TryCancel();
    } else if (!finished_) {
      finished_ = true;
      Finish(ToGrpc(why_));
    }
  }

  GrpcControlServer* const server_;
  grpc::CallbackServerContext* const context_;
  const Incarnation worker_;
  const std::string role_;  // in its certificate; empty: plain text
  // Guarded by server_->mutex_.
  bool retired_ = false, finished_ = false, reading_ = false, writing_ = false;
  bool taken_ = false;  // its WorkerConnected was taken
  int unread_ = 0;      // reports not yet taken
  std::vector<RouterMessage> unsent_;
  absl::Status why_;

 private:
  // A worker announces itself as its certificate says.
  absl::StatusOr<WorkerReport> Checked(WorkerReport report) const {
    for (const WorkerEvent& event : report.events) {
      const auto* announce = std::get_if<WorkerAnnounce>(&event);
      if (role_.empty() || announce == nullptr || role_ == RoleName(announce->role)) continue;
      const std::string why =
          absl::StrFormat("worker %s announces the role %s, and its certificate is for %s",
                          announce->name, RoleName(announce->role), role_);
      server_->refusals_->Add(JoinFault::kOtherRole, context_->peer(), why);
      return absl::PermissionDeniedError(why);
    }
    return report;
  }

  wire::WorkerReport read_;
  wire::RouterMessages write_;
};

void GrpcControlServer::Unlock(std::unique_lock<std::mutex>& lock) {
  const bool wake = std::exchange(wake_needed_, false);
  lock.unlock();
  if (wake && options_.wake) options_.wake();
}

absl::Status GrpcControlServer::ListenOnSocket() {
  UnixControlListener::Handlers handlers;
  handlers.on_accepted = [this](int peer) { grpc::AddInsecureChannelFromFd(server_.get(), peer); };
  handlers.on_refused = [this](uid_t user) {
    refusals_->Add(JoinFault::kOtherUser, options_.address,
                   absl::StrFormat("the dialler is a process of user %d, neither this process's "
                                   "nor root",
                                   user));
  };
  ASSIGN_OR_RETURN(socket_, UnixControlListener::Start(options_.address, std::move(handlers)));
  return absl::OkStatus();
}

absl::Status GrpcControlServer::Listen() {
  const bool is_unix = IsUnixAddress(options_.address);
  if (is_unix && options_.certificate != nullptr)
    return absl::InvalidArgumentError(absl::StrFormat(
        "router.control: %s is on this machine, where no certificate is used: leave "
        "cluster.tls_cert, cluster.tls_key and cluster.tls_ca out, or listen on host:port",
        options_.address));
  if (!is_unix && options_.certificate == nullptr && !IsLoopbackAddress(options_.address))
    return absl::InvalidArgumentError(absl::StrFormat(
        "router.control: %s is not on the loopback, and control streams would be plain text: set "
        "cluster.tls_cert, cluster.tls_key and cluster.tls_ca, or use 127.0.0.1",
        options_.address));
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (options_.certificate != nullptr) {
    ASSIGN_OR_RETURN(tls_, ControlServerTls::Start(options_.certificate, refusals_));
    credentials = tls_->credentials();
  }
  grpc::ServerBuilder builder;
  builder.SetOption(std::make_unique<NoPlugins>());
  for (const ChannelArgument& argument : ControlChannelArguments())
    builder.AddChannelArgument(argument.name, argument.value);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a taken port is an error, not shared
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsPerConnection);
  if (!is_unix) builder.AddListeningPort(options_.address, credentials, &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ != nullptr && is_unix) return ListenOnSocket();
  if (server_ == nullptr || port_ == 0)
    return absl::UnavailableError(
        absl::StrFormat("cannot listen for workers on %s: is the port taken?", options_.address));
  return absl::OkStatus();
}

// Gives a peer without a proof the number to make one with.
Refusal* GrpcControlServer::Challenge(grpc::CallbackServerContext* context) {
  std::lock_guard lock(mutex_);
  context->AddTrailingMetadata(kChallengeKey, ChallengeText(challenges_.Give(MonotonicNow())));
  context->AddTrailingMetadata(kRouterIdKey, RouterIdText(options_.router));
  return new Refusal(absl::UnauthenticatedError("prove the cluster key with this challenge"));
}

absl::StatusOr<Admitted> GrpcControlServer::Admit(const grpc::CallbackServerContext& context,
                                                  JoinFault* fault) {
  Admitted admitted;
  if (tls_ != nullptr) {
    ASSIGN_OR_RETURN(admitted.role, tls_->RoleOf(*context.auth_context(), fault));
  }
  const auto proof = context.client_metadata().find(kWorkerProofKey);
  if (proof == context.client_metadata().end()) return admitted;  // has no incarnation
  ASSIGN_OR_RETURN(
      admitted.proven,
      CheckWorkerProof(options_.key, {proof->second.data(), proof->second.size()}, fault));
  std::lock_guard lock(mutex_);
  if (challenges_.Take(admitted.proven.challenge, MonotonicNow())) return admitted;
  *fault = JoinFault::kReplayedProof;
  return absl::UnauthenticatedError(
      "the proof of membership is for a challenge that was used, is too old, or is not of this "
      "router");
}

grpc::ServerBidiReactor<wire::WorkerReport, wire::RouterMessages>* GrpcControlServer::Attach(
    grpc::CallbackServerContext* context) {
  JoinFault fault{};
  const absl::StatusOr<Admitted> admitted = Admit(*context, &fault);
  if (!admitted.ok()) {
    refusals_->Add(fault, PeerOf(*context), std::string(admitted.status().message()));
    return new Refusal(admitted.status());
  }
  const ProvenWorker& proven = admitted->proven;
  if (proven.incarnation == 0) return Challenge(context);
  std::unique_lock lock(mutex_);
  if (shut_down_) return new Refusal(absl::UnavailableError("the router is shutting down"));
  const auto older = streams_.find(proven.incarnation);
  const int allowed = options_.max_workers + (older != streams_.end() ? 1 : 0);
  if (counted_streams_ >= allowed)
    return new Refusal(absl::ResourceExhaustedError(
        absl::StrFormat("the router already has %d workers", counted_streams_)));
  if (older != streams_.end())
    RetireLocked(*older->second, absl::AbortedError("the worker dialled anew"));
  context->AddInitialMetadata(kRouterProofKey, RouterProof(options_.key, proven));
  auto* const stream = new Stream(this, context, *admitted);
  ++n_streams_;
  ++counted_streams_;
  streams_[stream->worker_] = stream;
  Queue(WorkerConnected{.worker = stream->worker_, .peer = PeerOf(*context)});
  stream->StartSendInitialMetadata();
  stream->ReadMoreLocked();
  Unlock(lock);
  return stream;
}

void GrpcControlServer::Queue(ControlEvent event) {
  if (events_.empty()) wake_needed_ = true;
  events_.push_back(std::move(event));
}

void GrpcControlServer::RetireLocked(Stream& stream, const absl::Status& why) {
  stream.retired_ = true;
  stream.why_ = why;
  stream.unsent_.clear();
  streams_.erase(stream.worker_);
  Queue(WorkerLost{.worker = stream.worker_, .reason = why});
  stream.FinishLocked();
}

bool GrpcControlServer::TakeEvents(std::vector<ControlEvent>* out) {
  std::lock_guard lock(mutex_);
  if (events_.empty()) return false;
  std::move(events_.begin(), events_.end(), std::back_inserter(*out));
  events_.clear();
  counted_streams_ = static_cast<int>(streams_.size());
  for (const auto& [worker, stream] : streams_) {
    stream->taken_ = true;
    stream->unread_ = 0;
    stream->ReadMoreLocked();
  }
  return true;
}

GrpcControlServer::Stream* GrpcControlServer::FindTaken(Incarnation worker) {
  const auto stream = streams_.find(worker);
  return stream == streams_.end() || !stream->second->taken_ ? nullptr : stream->second;
}

void GrpcControlServer::Send(Incarnation worker, std::vector<RouterMessage> messages) {
  std::unique_lock lock(mutex_);
  Stream* const stream = FindTaken(worker);
  if (stream == nullptr) return;
  if (stream->unsent_.size() + messages.size() >
      static_cast<size_t>(options_.max_unsent_messages)) {
    RetireLocked(*stream,
                 absl::ResourceExhaustedError(absl::StrFormat(
                     "the worker does not read: %d messages wait for it", stream->unsent_.size())));
  } else {
    std::move(messages.begin(), messages.end(), std::back_inserter(stream->unsent_));
    stream->WriteMoreLocked();
  }
  Unlock(lock);
}

void GrpcControlServer::Close(Incarnation worker, const absl::Status& reason) {
  std::unique_lock lock(mutex_);
  if (Stream* const stream = FindTaken(worker)) RetireLocked(*stream, reason);
  Unlock(lock);
}

void GrpcControlServer::Shutdown() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(shut_down_, true)) return;
    while (!streams_.empty())
      RetireLocked(*streams_.begin()->second,
                   absl::UnavailableError("the router is shutting down"));
    wake_needed_ = false;
  }
  socket_.reset();
  if (server_ != nullptr) {
    server_->Shutdown(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(500, GPR_TIMESPAN)));
    server_->Wait();
  }
  std::unique_lock lock(mutex_);
  no_streams_.wait(lock, [this] { return n_streams_ == 0; });
  events_.clear();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(
    const ControlServerOptions& options) {
  auto server = std::make_unique<GrpcControlServer>(options);
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace baton
