#include "kvtransfer/links/ucx_link.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "kvtransfer/links/socket_filter.h"
#include "kvtransfer/links/ucx_context.h"
#include "kvtransfer/links/ucx_memory.h"
#include "kvtransfer/protocol/session.h"

namespace baton {
namespace {

constexpr unsigned kControlId = 1, kChunkId = 2;  // active message ids
constexpr size_t kMaxMessageBytes = wire::kMaxControlBytes + Session::kSealBytes;
// Bounds the memory that one peer can occupy at this end.
constexpr size_t kMaxHeldPerConnection = 1'024;
constexpr int kListeners = 2;  // of UCX: for connecting, and for what its peers send
constexpr int kProgressesPerPoll = 256;

class UcxLink final : public Link {
 public:
  static absl::StatusOr<std::unique_ptr<Link>> Make(const std::string& host,
                                                    const UcxLinkOptions& options);
  ~UcxLink() override;

  const std::string& address() const override { return address_; }
  void Register(std::byte* base, int64_t bytes) override { memory_->Register(base, bytes); }
  ConnectionId Connect(const std::string& address) override;
  void Send(ConnectionId connection, std::string message) override;
  void Announce(ConnectionId connection, OperationId operation,
                const wire::ChunkHeaderBytes& header, const std::byte* payload,
                uint64_t length) override;
  void Accept(AnnouncementId announcement, OperationId operation, std::byte* destination) override;
  void Refuse(AnnouncementId announcement) override;
  void Close(ConnectionId connection) override;
  bool Poll(std::vector<LinkEvent>* events) override;
  bool Arm() override;
  int wake_fd() const override { return wake_fd_; }
  bool idle() const override { return n_operations_ == 0 && closing_.empty(); }

 private:
  struct Connection {
    UcxLink* link = nullptr;
    ConnectionId id = 0;
    ucp_ep_h endpoint = nullptr;
    size_t n_held = 0;
    bool failed = false;  // the error callback ran; Poll closes the connection and reports it
    ucs_status_t status = UCS_OK;
  };
  // One posted send or receive; UCX reads header and message until it completes.
  struct Operation {
    enum class Kind { kMessage, kChunkSend, kChunkReceive };
    UcxLink* link;
    Kind kind;
    OperationId id = 0;
    wire::ChunkHeaderBytes header{};
    std::string message;
  };
  struct Held {  // announced, neither accepted nor refused
    ConnectionId connection;
    void* descriptor;
    uint64_t length;
  };

  UcxLink() = default;

  // Called by UCX from ucp_worker_progress: callbacks record, Poll acts.
  static void OnConnectRequest(ucp_conn_request_h request, void* arg) noexcept;
  static void OnError(void* arg, ucp_ep_h endpoint, ucs_status_t status) noexcept;
  static ucs_status_t OnControl(void* arg, const void* header, size_t header_length, void* data,
                                size_t length, const ucp_am_recv_param_t* param) noexcept;
  static ucs_status_t OnChunk(void* arg, const void* header, size_t header_length, void* data,
                              size_t length, const ucp_am_recv_param_t* param) noexcept;
  static void OnSent(void* request, ucs_status_t status, void* user_data) noexcept;
  static void OnReceived(void* request, ucs_status_t status, size_t length,
                         void* user_data) noexcept;

  Connection* Find(ConnectionId id);
  Connection* FindByReply(const ucp_am_recv_param_t* param);
  // Shared by both ways of making an endpoint; on failure Poll reports the connection as lost.
  void MakeEndpoint(Connection* connection, ucp_ep_params_t params);
  void AcceptConnections();
  void CloseFailed();
  // Force-closes: every operation of the connection completes soon after, with an error. Drops held
  // announcements.
  void CloseEndpoint(Connection* connection);
  void ReapClosing();
  void Complete(Operation* operation, ucs_status_t status);
  // Handles the three ways in which a UCX call ends: done, failed, or under way and completed by
  // its callback.
  void Follow(ucs_status_ptr_t result, Operation* operation);

  UcxContext context_;
  std::optional<UcxMemory> memory_;
  UcxWorker worker_;
  UcxListener listener_;
  std::string address_;
  int wake_fd_ = -1;

  ConnectionId next_connection_ = 1;
  AnnouncementId next_announcement_ = 1;
  absl::flat_hash_map<ConnectionId, std::unique_ptr<Connection>> connections_;
  absl::flat_hash_map<ucp_ep_h, Connection*> by_endpoint_;
  absl::flat_hash_map<AnnouncementId, Held> held_;
  std::vector<ucp_conn_request_h> connect_requests_;
  std::vector<ucs_status_ptr_t> closing_;            // close requests under way
  std::vector<std::unique_ptr<Connection>> closed_;  // until their close requests are done
  std::vector<LinkEvent> noted_;
  bool any_failed_ = false;
  int n_operations_ = 0;
};

// ---- start and end ----

absl::StatusOr<std::unique_ptr<Link>> UcxLink::Make(const std::string& host,
                                                    const UcxLinkOptions& options) {
  ASSIGN_OR_RETURN(const sockaddr_in address, ParseSocketAddress(absl::StrCat(host, ":0")));
  std::unique_ptr<UcxLink> link(new UcxLink);
  ASSIGN_OR_RETURN(link->context_,
                   MakeUcxContext(address.sin_addr, options.ports, options.transport));
  RETURN_IF_ERROR(CheckPorts(address, options.ports));
  ASSIGN_OR_RETURN(const Networks allowed,
                   Networks::Parse(options.allowed_cidrs, "kvtransfer.allowed_cidrs"));
  const std::vector<int> others = ListenersAt(address.sin_addr);
  link->memory_.emplace(link->context_.get());
  ASSIGN_OR_RETURN(link->worker_, MakeUcxWorker(link->context_));
  if (const ucs_status_t status = ucp_worker_get_efd(link->worker_.get(), &link->wake_fd_);
      status != UCS_OK)
    return UcxError("asking for the wake-up descriptor", status);
  RETURN_IF_ERROR(SetUcxHandler(link->worker_, kControlId, &UcxLink::OnControl, link.get()));
  RETURN_IF_ERROR(SetUcxHandler(link->worker_, kChunkId, &UcxLink::OnChunk, link.get()));
  ASSIGN_OR_RETURN(link->listener_, MakeUcxListener(link->worker_, address, options.ports,
                                                    {&UcxLink::OnConnectRequest, link.get()}));
  ASSIGN_OR_RETURN(link->address_, AddressOf(link->listener_));
  if (allowed.ContainAll()) return link;
  int n_filtered = 0;
  for (const int socket : ListenersAt(address.sin_addr)) {  // UCX tells of none of its own
    if (std::binary_search(others.begin(), others.end(), socket)) continue;
    RETURN_IF_ERROR(AdmitOnly(allowed, address.sin_addr, socket));
    ++n_filtered;
  }
  if (n_filtered >= kListeners) return link;
  return absl::UnavailableError(absl::StrFormat(
      "kvtransfer.allowed_cidrs: %d of UCX's %d sockets were found at %s; it must be the first "
      "address of its network interface, and /proc must be readable",
      n_filtered, kListeners, host));
}

UcxLink::~UcxLink() {
  if (worker_ == nullptr) return;
  std::vector<ConnectionId> open;
  for (const auto& [id, connection] : connections_) open.push_back(id);
  for (const ConnectionId id : open) Close(id);
  // Force-closed operations complete within a few turns. The bound only guards against a UCX that
  // breaks this rule; destroying the worker then ends them.
  std::vector<LinkEvent> ignored;
  for (int turn = 0; turn < 100'000 && !idle(); ++turn) {
    Poll(&ignored);
    ignored.clear();
  }
  for (const ucp_conn_request_h request : connect_requests_)
    ucp_listener_reject(listener_.get(), request);
  listener_.reset();  // before the worker, or UCX complains
}

// ---- connections ----

UcxLink::Connection* UcxLink::Find(ConnectionId id) {
  const auto it = connections_.find(id);
  return it != connections_.end() && !it->second->failed ? it->second.get() : nullptr;
}

UcxLink::Connection* UcxLink::FindByReply(const ucp_am_recv_param_t* param) {
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return nullptr;
  const auto it = by_endpoint_.find(param->reply_ep);
  return it != by_endpoint_.end() && !it->second->failed ? it->second : nullptr;
}

void UcxLink::MakeEndpoint(Connection* connection, ucp_ep_params_t params) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&UcxLink::OnError, connection};
  const ucs_status_t status = ucp_ep_create(worker_.get(), &params, &connection->endpoint);
  if (status == UCS_OK) {
    by_endpoint_[connection->endpoint] = connection;
  } else {
    connection->endpoint = nullptr;
    OnError(connection, nullptr, status);
  }
}

ConnectionId UcxLink::Connect(const std::string& address) {
  const ConnectionId id = next_connection_++;
  auto& connection = connections_[id];
  connection = std::make_unique<Connection>(Connection{.link = this, .id = id});
  const absl::StatusOr<sockaddr_in> parsed = ParseSocketAddress(address);
  if (!parsed.ok()) {
    OnError(connection.get(), nullptr, UCS_ERR_INVALID_ADDR);
    return id;
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {reinterpret_cast<const sockaddr*>(&*parsed), sizeof(*parsed)};
  MakeEndpoint(connection.get(), params);
  return id;
}

void UcxLink::AcceptConnections() {
  for (const ucp_conn_request_h request : std::exchange(connect_requests_, {})) {
    const ConnectionId id = next_connection_++;
    auto& connection = connections_[id];
    connection = std::make_unique<Connection>(Connection{.link = this, .id = id});
    noted_.emplace_back(ConnectionAccepted{id, ClientOf(request)});
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request;
    MakeEndpoint(connection.get(), params);
  }
}

void UcxLink::OnConnectRequest(ucp_conn_request_h request, void* arg) noexcept {
  static_cast<UcxLink*>(arg)->connect_requests_.push_back(request);
}

void UcxLink::OnError(void* arg, ucp_ep_h, ucs_status_t status) noexcept {
  auto* connection = static_cast<Connection*>(arg);
  if (connection->failed) return;
  connection->failed = true;
  connection->status = status;
  connection->link->any_failed_ = true;
}

void UcxLink::CloseFailed() {
  if (!std::exchange(any_failed_, false)) return;
  std::vector<Connection*> failed;
  for (const auto& [id, connection] : connections_)
    if (connection->failed) failed.push_back(connection.get());
  std::sort(failed.begin(), failed.end(), [](auto* a, auto* b) { return a->id < b->id; });
  for (Connection* connection : failed) {
    noted_.emplace_back(
        ConnectionLost{connection->id, UcxError("the connection failed", connection->status)});
    CloseEndpoint(connection);
  }
}

void UcxLink::Close(ConnectionId connection) {
  if (const auto it = connections_.find(connection); it != connections_.end())
    CloseEndpoint(it->second.get());
}

void UcxLink::CloseEndpoint(Connection* connection) {
  std::vector<AnnouncementId> held;
  for (const auto& [id, announced] : held_)
    if (announced.connection == connection->id) held.push_back(id);
  for (const AnnouncementId id : held) Refuse(id);
  if (connection->endpoint != nullptr) {
    by_endpoint_.erase(connection->endpoint);
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t request = ucp_ep_close_nbx(connection->endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
  }
  connection->failed = true;
  const auto it = connections_.find(connection->id);
  closed_.push_back(std::move(it->second));  // UCX may still name it to OnError
  connections_.erase(it);
}

void UcxLink::ReapClosing() {
  std::erase_if(closing_, [](ucs_status_ptr_t request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
    return true;
  });
  if (closing_.empty() && n_operations_ == 0) closed_.clear();
}

// ---- sending ----

void UcxLink::Send(ConnectionId id, std::string message) {
  Connection* connection = Find(id);
  if (connection == nullptr) return;  // the loss of the connection is reported soon
  auto* operation =
      new Operation{.link = this, .kind = Operation::Kind::kMessage, .message = std::move(message)};
  ++n_operations_;
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
  param.cb.send = &UcxLink::OnSent;
  param.user_data = operation;
  Follow(ucp_am_send_nbx(connection->endpoint, kControlId, nullptr, 0, operation->message.data(),
                         operation->message.size(), &param),
         operation);
}

void UcxLink::Announce(ConnectionId id, OperationId operation_id,
                       const wire::ChunkHeaderBytes& header, const std::byte* payload,
                       uint64_t length) {
  Connection* connection = Find(id);
  if (connection == nullptr) {
    noted_.emplace_back(ChunkSent{operation_id});
    return;
  }
  auto* operation = new Operation{.link = this,
                                  .kind = Operation::Kind::kChunkSend,
                                  .id = operation_id,
                                  .header = header,
                                  .message = {}};
  ++n_operations_;
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_AM_SEND_FLAG_RNDV | UCP_AM_SEND_FLAG_REPLY;
  param.cb.send = &UcxLink::OnSent;
  param.user_data = operation;
  memory_->Describe(payload, length, &param);
  Follow(ucp_am_send_nbx(connection->endpoint, kChunkId, operation->header.data(),
                         operation->header.size(), payload, length, &param),
         operation);
}

void UcxLink::Follow(ucs_status_ptr_t result, Operation* operation) {
  if (UCS_PTR_IS_PTR(result)) return;  // the callback follows
  Complete(operation, UCS_PTR_STATUS(result));
}

void UcxLink::OnSent(void* request, ucs_status_t status, void* user_data) noexcept {
  auto* operation = static_cast<Operation*>(user_data);
  ucp_request_free(request);
  operation->link->Complete(operation, status);
}

void UcxLink::OnReceived(void* request, ucs_status_t status, size_t, void* user_data) noexcept {
  OnSent(request, status, user_data);
}

void UcxLink::Complete(Operation* operation, ucs_status_t status) {
  if (operation->kind == Operation::Kind::kChunkSend) noted_.emplace_back(ChunkSent{operation->id});
  if (operation->kind == Operation::Kind::kChunkReceive)
    noted_.emplace_back(ChunkLanded{operation->id, status == UCS_OK});
  delete operation;
  --n_operations_;
}

// ---- receiving ----

ucs_status_t UcxLink::OnControl(void* arg, const void*, size_t, void* data, size_t length,
                                const ucp_am_recv_param_t* param) noexcept {
  auto* link = static_cast<UcxLink*>(arg);
  Connection* connection = link->FindByReply(param);
  // Malformed: a message by rendezvous is no control message, and one that is too long is no
  // message at all.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_ERR_CANCELED;
  if (connection == nullptr || length > kMaxMessageBytes) return UCS_OK;
  link->noted_.emplace_back(
      MessageArrived{connection->id, std::string(static_cast<const char*>(data), length)});
  return UCS_OK;
}

ucs_status_t UcxLink::OnChunk(void* arg, const void* header, size_t header_length, void* data,
                              size_t length, const ucp_am_recv_param_t* param) noexcept {
  auto* link = static_cast<UcxLink*>(arg);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) return UCS_OK;  // not requested: drop
  Connection* connection = link->FindByReply(param);
  if (connection == nullptr || header_length != wire::kChunkHeaderBytes ||
      connection->n_held >= kMaxHeldPerConnection)
    return UCS_ERR_CANCELED;
  ++connection->n_held;
  const AnnouncementId id = link->next_announcement_++;
  link->held_[id] = {connection->id, data, length};
  link->noted_.emplace_back(
      ChunkAnnounced{.connection = connection->id,
                     .announcement = id,
                     .header = std::string(static_cast<const char*>(header), header_length),
                     .length = length});
  return UCS_INPROGRESS;  // held until Accept or Refuse
}

void UcxLink::Accept(AnnouncementId announcement, OperationId operation_id,
                     std::byte* destination) {
  const auto it = held_.find(announcement);
  if (it == held_.end()) {  // dropped with its connection
    noted_.emplace_back(ChunkLanded{operation_id, false});
    return;
  }
  const Held held = it->second;
  held_.erase(it);
  if (Connection* connection = Find(held.connection)) --connection->n_held;
  auto* operation = new Operation{
      .link = this, .kind = Operation::Kind::kChunkReceive, .id = operation_id, .message = {}};
  ++n_operations_;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = &UcxLink::OnReceived;
  param.user_data = operation;
  memory_->Describe(destination, held.length, &param);
  // Exactly the announced length: UCX aborts the process on a shorter receive.
  Follow(ucp_am_recv_data_nbx(worker_.get(), held.descriptor, destination, held.length, &param),
         operation);
}

void UcxLink::Refuse(AnnouncementId announcement) {
  const auto it = held_.find(announcement);
  if (it == held_.end()) return;
  const Held held = it->second;
  held_.erase(it);
  if (Connection* connection = Find(held.connection)) --connection->n_held;
  ucp_am_data_release(worker_.get(), held.descriptor);
}

// ---- turning ----

bool UcxLink::Poll(std::vector<LinkEvent>* events) {
  for (int i = 0; i < kProgressesPerPoll && ucp_worker_progress(worker_.get()) != 0; ++i) {
  }
  AcceptConnections();
  CloseFailed();
  ReapClosing();
  if (noted_.empty()) return false;
  for (LinkEvent& event : std::exchange(noted_, {})) events->push_back(std::move(event));
  return true;
}

bool UcxLink::Arm() {
  return noted_.empty() && connect_requests_.empty() && !any_failed_ &&
         ucp_worker_arm(worker_.get()) == UCS_OK;
}

}  // namespace

absl::StatusOr<UcxLinkOptions> UcxLinkOptionsOf(const TransferOptions& options) {
  ASSIGN_OR_RETURN(const PortRange ports, PortRange::Parse(options.ports));
  return UcxLinkOptions{ports, options.allowed_cidrs, options.transport};
}

absl::StatusOr<std::unique_ptr<Link>> MakeUcxLink(const std::string& host,
                                                  const UcxLinkOptions& options) {
  return UcxLink::Make(host, options);
}

}  // namespace baton
