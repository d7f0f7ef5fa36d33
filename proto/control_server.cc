#include "proto/control_server.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "control.grpc.pb.h"
#include "proto/control_channel.h"
#include "proto/control_codec.h"
#include "proto/membership.h"

namespace baton {
namespace {

using StreamId = uint64_t;

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// Answers a refused call.
class Refusal : public grpc::ServerBidiReactor<wire::WorkerReport, wire::RouterMessages> {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

// One mutex guards all streams and the queue of events: reactions hold it for a few moves, and the
// front thread is the only one to contend.
class ControlServer::Core : public wire::Control::CallbackService {
 public:
  explicit Core(const ControlServerOptions& options) : options_(options) {}

  absl::Status Listen();
  int port() const { return port_; }
  bool TakeEvents(std::vector<ControlEvent>* out);
  void Send(Incarnation worker, std::vector<RouterMessage> messages);
  void Close(Incarnation worker, const absl::Status& reason);
  void Shutdown();

  grpc::ServerBidiReactor<wire::WorkerReport, wire::RouterMessages>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  class Stream;
  struct QueuedEvent {
    StreamId stream = 0;
    ControlEvent event{};
  };

  absl::StatusOr<ProvenWorker> Admit(const grpc::CallbackServerContext& context) const;
  void Queue(StreamId stream, ControlEvent event);             // under mutex_
  void RetireLocked(Stream& stream, const absl::Status& why);  // under mutex_
  void RecordTaken(const QueuedEvent& taken);                  // under mutex_
  Stream* FindTaken(Incarnation worker);                       // under mutex_
  void Unlock(std::unique_lock<std::mutex>& lock);             // also wakes the consumer if needed

  const ControlServerOptions options_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;

  std::mutex mutex_;
  std::condition_variable no_streams_;
  bool shut_down_ = false;
  StreamId next_stream_ = 1;
  absl::flat_hash_map<StreamId, Stream*> streams_;     // until OnDone
  absl::flat_hash_map<Incarnation, StreamId> newest_;  // without retired streams
  absl::flat_hash_map<Incarnation, StreamId> taken_;   // as taken by the front thread
  std::vector<QueuedEvent> events_;
  bool wake_needed_ = false;  // events_ was empty before the current event
  int counted_streams_ = 0;   // admitted and WorkerLost not yet taken
};

// One worker's stream. Deletes itself in OnDone, which comes once, last, after Finish.
class ControlServer::Core::Stream
    : public grpc::ServerBidiReactor<wire::WorkerReport, wire::RouterMessages> {
 public:
  Stream(Core* core, grpc::CallbackServerContext* context, StreamId id, Incarnation worker)
      : core_(core), context_(context), id_(id), worker_(worker) {}

  void OnReadDone(bool ok) override {
    absl::StatusOr<WorkerReport> report = absl::UnavailableError("the worker closed its stream");
    if (ok) report = DecodeReport(read_);
    std::unique_lock lock(core_->mutex_);
    if (retired_) return;
    if (!report.ok()) {
      core_->RetireLocked(*this, report.status());
    } else {
      ++unread_;
      core_->Queue(id_, WorkerReported{.worker = worker_, .report = *std::move(report)});
      reading_ = false;
      ReadMoreLocked();
    }
    core_->Unlock(lock);
  }
  void OnWriteDone(bool ok) override {
    std::unique_lock lock(core_->mutex_);
    writing_ = false;
    if (retired_) {
      FinishLocked();
    } else if (!ok) {
      core_->RetireLocked(*this, absl::UnavailableError("the stream to the worker broke"));
    } else {
      WriteMoreLocked();
    }
    core_->Unlock(lock);
  }
  void OnCancel() override {
    std::unique_lock lock(core_->mutex_);
    if (!retired_)
      core_->RetireLocked(*this, absl::UnavailableError("the connection to the worker was lost"));
    core_->Unlock(lock);
  }
  void OnDone() override {
    {
      std::lock_guard lock(core_->mutex_);
      core_->streams_.erase(id_);
      // Under the lock: Shutdown may destroy the core as soon as it gets the lock.
      if (core_->streams_.empty()) core_->no_streams_.notify_all();
    }
    delete this;
  }

  void ReadMoreLocked() {
    if (retired_ || reading_ || unread_ >= core_->options_.max_unread_reports) return;
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

  Core* const core_;
  grpc::CallbackServerContext* const context_;
  const StreamId id_;
  const Incarnation worker_;
  // Guarded by core_->mutex_.
  bool retired_ = false, finished_ = false, reading_ = false, writing_ = false;
  int unread_ = 0;
  std::vector<RouterMessage> unsent_;
  absl::Status why_;

 private:
  wire::WorkerReport read_;
  wire::RouterMessages write_;
};

void ControlServer::Core::Unlock(std::unique_lock<std::mutex>& lock) {
  const bool wake = std::exchange(wake_needed_, false);
  lock.unlock();
  if (wake && options_.wake) options_.wake();
}

absl::Status ControlServer::Core::Listen() {
  if (!IsLoopbackAddress(options_.address))
    return absl::InvalidArgumentError(
        absl::StrFormat("the control address %s is not on the loopback; control streams are plain "
                        "text: use 127.0.0.1",
                        options_.address));
  grpc::ServerBuilder builder;
  for (const ChannelArgument& argument : ControlChannelArguments())
    builder.AddChannelArgument(argument.name, argument.value);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a taken port is an error, not shared
  builder.AddListeningPort(options_.address, grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port_ == 0)
    return absl::UnavailableError(
        absl::StrFormat("cannot listen for workers on %s: is the port taken?", options_.address));
  return absl::OkStatus();
}

absl::StatusOr<ProvenWorker> ControlServer::Core::Admit(
    const grpc::CallbackServerContext& context) const {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kWorkerProofKey);
  if (found == metadata.end()) return CheckWorkerProof(options_.key, "");
  return CheckWorkerProof(options_.key,
                          std::string_view(found->second.data(), found->second.size()));
}

grpc::ServerBidiReactor<wire::WorkerReport, wire::RouterMessages>* ControlServer::Core::Attach(
    grpc::CallbackServerContext* context) {
  const absl::StatusOr<ProvenWorker> proven = Admit(*context);
  if (!proven.ok()) {
    LogWarn("control stream from %s refused: %s", context->peer(),
            std::string(proven.status().message()));
    return new Refusal(proven.status());
  }
  std::unique_lock lock(mutex_);
  if (shut_down_) return new Refusal(absl::UnavailableError("the router is shutting down"));
  if (counted_streams_ >= options_.max_workers)
    return new Refusal(absl::ResourceExhaustedError(
        absl::StrFormat("the router already has %d workers", counted_streams_)));
  if (const auto older = newest_.find(proven->incarnation); older != newest_.end())
    RetireLocked(*streams_.at(older->second), absl::AbortedError("the worker dialled anew"));
  context->AddInitialMetadata(kRouterProofKey, RouterProof(options_.key, *proven));
  auto* const stream = new Stream(this, context, next_stream_++, proven->incarnation);
  ++counted_streams_;
  streams_[stream->id_] = stream;
  newest_[stream->worker_] = stream->id_;
  Queue(stream->id_, WorkerConnected{.worker = stream->worker_, .peer = context->peer()});
  stream->StartSendInitialMetadata();
  stream->ReadMoreLocked();
  Unlock(lock);
  return stream;
}

void ControlServer::Core::Queue(StreamId stream, ControlEvent event) {
  if (events_.empty()) wake_needed_ = true;
  events_.push_back({stream, std::move(event)});
}

void ControlServer::Core::RetireLocked(Stream& stream, const absl::Status& why) {
  stream.retired_ = true;
  stream.why_ = why;
  stream.unsent_.clear();
  if (const auto it = newest_.find(stream.worker_); it != newest_.end() && it->second == stream.id_)
    newest_.erase(it);
  Queue(stream.id_, WorkerLost{.worker = stream.worker_, .reason = why});
  stream.FinishLocked();
}

bool ControlServer::Core::TakeEvents(std::vector<ControlEvent>* out) {
  std::lock_guard lock(mutex_);
  if (events_.empty()) return false;
  out->reserve(out->size() + events_.size());
  for (QueuedEvent& queued : events_) {
    RecordTaken(queued);
    out->push_back(std::move(queued.event));
  }
  events_.clear();
  return true;
}

void ControlServer::Core::RecordTaken(const QueuedEvent& taken) {
  if (const auto* connected = std::get_if<WorkerConnected>(&taken.event)) {
    taken_[connected->worker] = taken.stream;
  } else if (const auto* lost = std::get_if<WorkerLost>(&taken.event)) {
    taken_.erase(lost->worker);
    --counted_streams_;
  } else if (const auto it = streams_.find(taken.stream); it != streams_.end()) {
    --it->second->unread_;
    it->second->ReadMoreLocked();
  }
}

ControlServer::Core::Stream* ControlServer::Core::FindTaken(Incarnation worker) {
  const auto taken = taken_.find(worker);
  if (taken == taken_.end()) return nullptr;
  const auto stream = streams_.find(taken->second);
  return stream == streams_.end() || stream->second->retired_ ? nullptr : stream->second;
}

void ControlServer::Core::Send(Incarnation worker, std::vector<RouterMessage> messages) {
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

void ControlServer::Core::Close(Incarnation worker, const absl::Status& reason) {
  std::unique_lock lock(mutex_);
  if (Stream* const stream = FindTaken(worker)) RetireLocked(*stream, reason);
  Unlock(lock);
}

void ControlServer::Core::Shutdown() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(shut_down_, true)) return;
    for (auto& [id, stream] : streams_)
      if (!stream->retired_)
        RetireLocked(*stream, absl::UnavailableError("the router is shutting down"));
    wake_needed_ = false;
  }
  if (server_ != nullptr) {
    server_->Shutdown(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(500, GPR_TIMESPAN)));
    server_->Wait();
  }
  std::unique_lock lock(mutex_);
  no_streams_.wait(lock, [this] { return streams_.empty(); });
  events_.clear();
}

// --- ControlServer ----------------------------------------------------------------------------

ControlServer::ControlServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ControlServer::~ControlServer() { core_->Shutdown(); }

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(
    const ControlServerOptions& options) {
  auto core = std::make_unique<Core>(options);
  RETURN_IF_ERROR(core->Listen());
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(core)));
}

int ControlServer::port() const { return core_->port(); }
bool ControlServer::TakeEvents(std::vector<ControlEvent>* out) { return core_->TakeEvents(out); }
void ControlServer::Send(Incarnation worker, std::vector<RouterMessage> messages) {
  core_->Send(worker, std::move(messages));
}
void ControlServer::Close(Incarnation worker, const absl::Status& reason) {
  core_->Close(worker, reason);
}
void ControlServer::Shutdown() { core_->Shutdown(); }

}  // namespace baton
