#include "server/grpc/completion_service.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "completion.grpc.pb.h"
#include "rpc_status.pb.h"
#include "server/grpc/certificate_service.h"
#include "server/grpc/frames.h"
#include "server/grpc/listening_service.h"
#include "server/grpc/peer_address.h"
#include "server/grpc/rpc_error.h"
#include "server/grpc/rpc_methods.h"

namespace baton {
namespace {

constexpr size_t kMaxMerged = 64 << 10;  // bytes of messages that become one

grpc::ByteBuffer BufferOf(std::string_view bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return {&slice, 1};
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  bytes.reserve(buffer.Length());
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

// reply: of RpcRefusal.
grpc::Status StatusOf(const HttpReply& reply) {
  rpc::Status status;
  BATON_CHECK(status.ParseFromString(reply.body));
  return {static_cast<grpc::StatusCode>(status.code()), status.message(), reply.body};
}

ApiError Overloaded(std::string message) {
  return FromClusterStatus(absl::ResourceExhaustedError(std::move(message)));
}

// The request of a call as the front sees requests of HTTP. Its key is whatever the client says.
HttpRequest RequestOf(const grpc::CallbackServerContext& context, const char* method,
                      const grpc::ByteBuffer& message) {
  const auto metadata = [&](const char* name) {
    const auto found = context.client_metadata().find(name);
    return found == context.client_metadata().end()
               ? std::string()
               : std::string(found->second.data(), found->second.size());
  };
  HttpRequest request;
  request.method = "POST";
  request.path = absl::StrCat("/", kCompletionService, "/", method);
  request.request_id = metadata("x-request-id");
  request.trace = ReadTraceparent(metadata("traceparent"));
  request.client.address = AddressOfPeer(context.peer());
  request.authorization = metadata("authorization");
  request.api_key = metadata("x-api-key");
  request.client.key = absl::HashOf(request.authorization, request.api_key);
  request.body = BytesOf(message);
  return request;
}

using Buffer = grpc::ByteBuffer;
using StreamReactor = grpc::ServerWriteReactor<Buffer>;
using UnaryReactor = grpc::ServerUnaryReactor;
using RawService = v1::Completion::WithRawCallbackMethod_Generate<
    v1::Completion::WithRawCallbackMethod_Tokenize<v1::Completion::WithRawCallbackMethod_Detokenize<
        v1::Completion::WithRawCallbackMethod_ListModels<
            v1::Completion::WithRawCallbackMethod_GetLoads<v1::Completion::Service>>>>>;

// Answers a refused call.
template <typename Reactor>
class Refusal : public Reactor {
 public:
  explicit Refusal(const ApiError& error) { this->Finish(StatusOf(RpcRefusal(error))); }
  void OnDone() override { delete this; }
};

// One mutex guards all calls and the queue: reactions hold it for a few moves, and the front thread
// is the only one to contend.
class CallbackService final : public CompletionService, private RawService {
 public:
  CallbackService(EventLoop* loop, const GrpcOptions& options, ApiFront* front)
      : loop_(loop), options_(options), front_(front), write_timer_(loop) {}
  ~CallbackService() override;

  absl::Status Listen();
  int port() const override { return port_; }
  int n_calls() override {
    std::lock_guard lock(mutex_);
    return static_cast<int>(calls_.size());
  }
  void SetServing(bool serving) override;
  void ReloadCertificate() override {
    if (certificate_ != nullptr) certificate_->Reload();
  }

  void Reply(ExchangeId id, const HttpReply& reply) override;
  void StartStream(ExchangeId, const HttpReply&) override {}
  void Write(ExchangeId id, std::string_view bytes, size_t owed) override;
  void EndStream(ExchangeId id) override { End(id, grpc::Status::OK); }
  void FailStream(ExchangeId id, const HttpReply& why) override { End(id, StatusOf(why)); }
  void Drain(std::function<void()> drained) override;

 private:
  class Call;
  template <typename Reactor>
  class CallOf;
  class StreamCall;
  class UnaryCall;
  struct Event {  // a call that came, or (without a path) one whose client has gone
    ExchangeId id = 0;
    HttpRequest request{};
  };
  using Context = grpc::CallbackServerContext;

  StreamReactor* Generate(Context* context, const Buffer* message) override {
    return Begin<StreamReactor, StreamCall>(context, "Generate", *message, nullptr);
  }
  UnaryReactor* Tokenize(Context* context, const Buffer* message, Buffer* answer) override {
    return Begin<UnaryReactor, UnaryCall>(context, "Tokenize", *message, answer);
  }
  UnaryReactor* Detokenize(Context* context, const Buffer* message, Buffer* answer) override {
    return Begin<UnaryReactor, UnaryCall>(context, "Detokenize", *message, answer);
  }
  UnaryReactor* ListModels(Context* context, const Buffer* message, Buffer* answer) override {
    return Begin<UnaryReactor, UnaryCall>(context, "ListModels", *message, answer);
  }
  UnaryReactor* GetLoads(Context* context, const Buffer* message, Buffer* answer) override {
    return Begin<UnaryReactor, UnaryCall>(context, "GetLoads", *message, answer);
  }
  template <typename Reactor, typename NewCall>
  Reactor* Begin(Context* context, const char* method, const Buffer& message, Buffer* answer);
  std::optional<ApiError> RefusalOf(size_t bytes) const;  // under mutex_
  void Queue(Event event);                                // under mutex_
  void Unlock(std::unique_lock<std::mutex>& lock);        // also wakes the front if needed
  void TakeEvents();
  void End(ExchangeId id, const grpc::Status& status);
  void CheckWrites();

  EventLoop* const loop_;
  const GrpcOptions options_;
  ApiFront* const front_;
  std::unique_ptr<GrpcCertificate> certificate_;  // null: no TLS
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  EventLoop::Timer write_timer_;  // front thread, with the next two
  bool write_timer_set_ = false;
  std::optional<bool> serving_;

  std::mutex mutex_;
  std::condition_variable no_calls_;
  absl::flat_hash_map<ExchangeId, Call*> calls_;  // until OnDone
  ExchangeId next_id_ = kFirstGrpcExchange;
  std::vector<Event> events_;
  size_t waiting_bytes_ = 0;  // of requests in events_
  bool wake_needed_ = false;  // events_ was empty before the current event
  bool draining_ = false;
  std::function<void()> drained_;
};

// A call until OnDone, which comes once, last, after Finish. Guarded by server_->mutex_.
class CallbackService::Call {
 public:
  Call(CallbackService* server, Context* context, ExchangeId id)
      : server_(server), context_(context), id_(id) {}
  virtual ~Call() = default;

  // False: what the front says from now on is not told.
  bool is_open() const { return !gone_ && !end_ && !overflowed_; }
  absl::Time busy_since() const { return busy_since_; }

  virtual void ReplyLocked(const HttpReply& reply) = 0;
  void WriteLocked(std::string_view bytes, size_t owed) {
    unsent_.append(bytes);
    if (unsent_.size() > server_->options_.max_unsent + owed) {
      overflowed_ = true;
      unsent_.clear();
      context_->TryCancel();  // OnCancel tells the front
    } else {
      GoOnLocked();
    }
  }
  void EndLocked(const grpc::Status& status) {
    end_ = status;
    GoOnLocked();
  }
  void CancelLocked() { context_->TryCancel(); }

 protected:
  // Does what is next, if nothing is under way. A write to a client that does not read would never
  // end; that of a cancelled call fails.
  void GoOnLocked() {
    if (writing_ || finished_) return;
    if (gone_ || (unsent_.empty() && end_)) {
      finished_ = true;
      busy_since_ = MonotonicNow();
      FinishLocked(gone_ ? grpc::Status::CANCELLED : *end_);
    } else if (!unsent_.empty()) {
      writing_ = true;
      busy_since_ = MonotonicNow();
      StartWriteLocked(TakeMessage(kMaxMerged, &unsent_));
    }
  }
  void OnWritten(bool ok) {
    std::unique_lock lock(server_->mutex_);
    writing_ = false;
    busy_since_ = absl::InfiniteFuture();
    if (!ok) LoseLocked();
    GoOnLocked();
    server_->Unlock(lock);
  }
  void OnCancelled() {
    std::unique_lock lock(server_->mutex_);
    LoseLocked();
    GoOnLocked();
    server_->Unlock(lock);
  }
  void OnOver() {
    std::lock_guard lock(server_->mutex_);
    server_->calls_.erase(id_);
    // Under the lock: the service may go as soon as it gets the lock. No other reaction of a call
    // runs by then, as OnDone is the last one.
    if (!server_->calls_.empty()) return;
    server_->no_calls_.notify_all();
    if (server_->drained_) server_->loop_->Post(std::exchange(server_->drained_, nullptr));
  }

  virtual void StartWriteLocked(const std::string& message) = 0;
  virtual void FinishLocked(const grpc::Status& status) = 0;

 private:
  void LoseLocked() {
    if (std::exchange(gone_, true)) return;
    unsent_.clear();
    if (!end_) server_->Queue({.id = id_});
  }

  CallbackService* const server_;
  Context* const context_;
  const ExchangeId id_;
  bool gone_ = false, overflowed_ = false, writing_ = false, finished_ = false;
  absl::Time busy_since_ = absl::InfiniteFuture();  // with a write, or the last answer
  std::string unsent_;                              // frames
  std::optional<grpc::Status> end_;
};

template <typename Reactor>
class CallbackService::CallOf : public Call, public Reactor {
 public:
  using Call::Call;
  void OnCancel() override { OnCancelled(); }
  void OnDone() override {
    OnOver();
    delete this;
  }

 protected:
  void FinishLocked(const grpc::Status& status) override { Reactor::Finish(status); }
};

class CallbackService::StreamCall : public CallOf<StreamReactor> {
 public:
  StreamCall(CallbackService* server, Context* context, ExchangeId id, Buffer*)
      : CallOf(server, context, id) {}
  void OnWriteDone(bool ok) override { OnWritten(ok); }
  void ReplyLocked(const HttpReply& reply) override { EndLocked(StatusOf(reply)); }

 private:
  void StartWriteLocked(const std::string& message) override {
    message_ = BufferOf(message);
    StartWrite(&message_);
  }
  Buffer message_;
};

class CallbackService::UnaryCall : public CallOf<UnaryReactor> {
 public:
  UnaryCall(CallbackService* server, Context* context, ExchangeId id, Buffer* answer)
      : CallOf(server, context, id), answer_(answer) {}
  void ReplyLocked(const HttpReply& reply) override {
    if (reply.status == 200) *answer_ = BufferOf(reply.body);
    EndLocked(reply.status == 200 ? grpc::Status::OK : StatusOf(reply));
  }

 private:
  void StartWriteLocked(const std::string&) override {}  // has no stream
  Buffer* const answer_;
};

// --- gRPC threads -------------------------------------------------------------------------------

std::optional<ApiError> CallbackService::RefusalOf(size_t bytes) const {
  if (draining_) return HttpError(503, "The server is shutting down.", "shutting_down");
  if (calls_.size() >= static_cast<size_t>(options_.max_calls))
    return Overloaded("Too many calls are under way; try again later.");
  if (!events_.empty() && waiting_bytes_ + bytes > options_.max_waiting_bytes)
    return Overloaded("Too many large requests are waiting; try again later.");
  return std::nullopt;
}

template <typename Reactor, typename NewCall>
Reactor* CallbackService::Begin(Context* context, const char* method, const Buffer& message,
                                Buffer* answer) {
  HttpRequest request = RequestOf(*context, method, message);
  std::unique_lock lock(mutex_);
  if (const auto refusal = RefusalOf(request.body.size())) return new Refusal<Reactor>(*refusal);
  auto* const call = new NewCall(this, context, next_id_, answer);
  calls_.emplace(next_id_, call);
  Queue({.id = next_id_++, .request = std::move(request)});
  Unlock(lock);
  return call;
}

void CallbackService::Queue(Event event) {
  if (events_.empty()) wake_needed_ = true;
  waiting_bytes_ += event.request.body.size();
  events_.push_back(std::move(event));
}

void CallbackService::Unlock(std::unique_lock<std::mutex>& lock) {
  const bool wake = std::exchange(wake_needed_, false);
  lock.unlock();
  if (wake) loop_->Post([this] { TakeEvents(); });
}

// --- front thread -------------------------------------------------------------------------------

// Every call passes here with what its client said of itself; the front asks who may call.
void CallbackService::TakeEvents() {
  std::vector<Event> events;
  {
    std::lock_guard lock(mutex_);
    events.swap(events_);
    waiting_bytes_ = 0;
  }
  for (Event& event : events) {
    if (event.request.path.empty()) {
      front_->OnGone(event.id);
      continue;
    }
    ApiCall call{.exchange = event.id, .writer = this, .refusal = RpcRefusal};
    call.label = RouteLabel(RpcMethods(), event.request.path);
    call.request = std::move(event.request);
    front_->OnCall(RpcMethods(), std::move(call));
  }
}

void CallbackService::Reply(ExchangeId id, const HttpReply& reply) {
  std::unique_lock lock(mutex_);
  const auto found = calls_.find(id);
  if (found != calls_.end() && found->second->is_open()) found->second->ReplyLocked(reply);
  Unlock(lock);
  if (!write_timer_set_) CheckWrites();
}

void CallbackService::Write(ExchangeId id, std::string_view bytes, size_t owed) {
  std::unique_lock lock(mutex_);
  const auto found = calls_.find(id);
  if (found != calls_.end() && found->second->is_open()) found->second->WriteLocked(bytes, owed);
  Unlock(lock);
  if (!write_timer_set_) CheckWrites();
}

void CallbackService::End(ExchangeId id, const grpc::Status& status) {
  std::unique_lock lock(mutex_);
  const auto found = calls_.find(id);
  if (found != calls_.end() && found->second->is_open()) found->second->EndLocked(status);
  Unlock(lock);
}

// Cancels calls whose client has not read for too long, and sets the time of the next look.
void CallbackService::CheckWrites() {
  absl::Time next = absl::InfiniteFuture();
  {
    std::lock_guard lock(mutex_);
    const absl::Time now = MonotonicNow();
    for (const auto& [id, call] : calls_) {
      const absl::Time limit = call->busy_since() + options_.write_timeout;
      if (limit <= now) {
        call->CancelLocked();
      } else {
        next = std::min(next, limit);
      }
    }
  }
  write_timer_set_ = next != absl::InfiniteFuture();
  write_timer_.Set(next, [this] { CheckWrites(); });
}

// Watchers are told of every call, so that one without news is none.
void CallbackService::SetServing(bool serving) {
  if (draining_ || serving_ == serving) return;
  serving_ = serving;
  grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
  health->SetServingStatus("", serving);
  health->SetServingStatus(kCompletionService, serving);
}

void CallbackService::Drain(std::function<void()> drained) {
  SetServing(false);
  std::lock_guard lock(mutex_);
  draining_ = true;
  if (calls_.empty()) {
    loop_->Post(std::move(drained));
  } else {
    drained_ = std::move(drained);
  }
}

// --- life ---------------------------------------------------------------------------------------

absl::Status CallbackService::Listen() {
  RETURN_IF_ERROR(CheckGrpc(options_));
  auto credentials = grpc::InsecureServerCredentials();
  if (options_.tls.any()) {
    ASSIGN_OR_RETURN(certificate_, GrpcCertificate::Load(loop_, options_.tls));
    credentials = certificate_->Credentials();
  }
  ASSIGN_OR_RETURN(server_, ListenFor(options_, this, credentials, &port_));
  SetServing(false);
  return absl::OkStatus();
}

CallbackService::~CallbackService() {
  if (server_ == nullptr) return;
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    drained_ = nullptr;
  }
  server_->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
  // A cancelled call has ended when its reactor has.
  std::unique_lock lock(mutex_);
  no_calls_.wait(lock, [this] { return calls_.empty(); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<CompletionService>> CompletionService::Start(
    EventLoop* loop, const GrpcOptions& options, ApiFront* front) {
  auto server = std::make_unique<CallbackService>(loop, options, front);
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace baton
