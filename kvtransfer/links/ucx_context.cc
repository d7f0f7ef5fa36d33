#include "kvtransfer/links/ucx_context.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <sys/socket.h>
#include <ucs/debug/debug.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "kvtransfer/links/rdma_port.h"
#include "kvtransfer/protocol/networks.h"

namespace baton {
namespace {

absl::StatusOr<std::string> DeviceOf(const in_addr& host) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return absl::InternalError("getifaddrs failed");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  const bool loopback = (ntohl(host.s_addr) >> 24) == 127;  // all of 127/8 lives on one device
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    const auto* own = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    if (own->sin_addr.s_addr == host.s_addr || (loopback && (at->ifa_flags & IFF_LOOPBACK) != 0))
      return std::string(at->ifa_name);
  }
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &host, text, sizeof(text));
  return absl::InvalidArgumentError(absl::StrCat(
      "KV transfer cannot listen at ", text,
      ": no network device of this machine has this address; name one that has (no wildcard)"));
}

// UCX 1.13 handles SIGSEGV and similar signals by default: it would print its own backtrace and
// hide the crash from the observer of this process. Its switch is read when the library is loaded,
// too early for this code, so the handlers are removed one by one, once per process. Children of
// the supervisor have the switch from the start, and UCX warns of each handler that is not there.
void TakeBackSignals() {
  static const bool taken_back = [] {
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) {
      struct sigaction now {};
      ::sigaction(signal, nullptr, &now);
      if (now.sa_handler != SIG_DFL) ucs_debug_disable_signal(signal);
    }
    return true;
  }();
  static_cast<void>(taken_back);
}

bool IsFree(sockaddr_in host, int port) {
  host.sin_port = htons(static_cast<uint16_t>(port));
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  const bool is_free = ::bind(fd, reinterpret_cast<const sockaddr*>(&host), sizeof(host)) == 0;
  ::close(fd);
  return is_free;
}

using UcxSettings = std::vector<std::pair<const char*, std::string>>;

// Keys of tcp go without their prefix (1.13 ignores TCP_TX_SEG_SIZE and says so on stderr).
UcxSettings CommonSettings(const std::string& devices, PortRange ports) {
  return {
      {"NET_DEVICES", devices},          // else rendezvous stripes over every device
      {"SOCKADDR_TLS_PRIORITY", "tcp"},  // so that workers of any two transports connect
      {"MAX_RNDV_RAILS", "1"},
      {"TX_SEG_SIZE", "64K"},  // eager messages: 3.9 -> 6.5 GB/s
      {"RX_SEG_SIZE", "128K"},
      {"KEEPALIVE_INTERVAL", "5s"},
      {"KEEPIDLE", "3s"},  // idle partitions; Baton's PING covers the rest
      {"KEEPINTVL", "1s"},
      {"KEEPCNT", "3"},
      {"CM_REUSEADDR", "y"},  // a restarted worker gets its port back at once
      {"PORT_RANGE", ports.ToString()},
      {"MEMTYPE_CACHE", "n"},  // host memory only, so no lookup is needed
  };
}

// Adds what is the transport's own. The receiver reads chunks (get_zcopy), so that nothing remote
// ever writes: a late writer would meet pages that were given back.
UcxSettings SettingsOf(KvTransport transport, const RdmaPort& rdma) {
  switch (transport) {
    case KvTransport::kRdma: {
      UcxSettings settings = {{"TLS", "rc,ud,tcp"}, {"RNDV_SCHEME", "get_zcopy"}};
      if (rdma.gid_index >= 0) settings.emplace_back("IB_GID_INDEX", absl::StrCat(rdma.gid_index));
      return settings;
    }
    // Messages go by tcp, whose connection tells of a death, and chunks by CMA. With UCX's posix
    // for messages, too, it was faster, and stood still after some dozens of killed peers.
    case KvTransport::kShm:
      return {{"TLS", "cma,tcp"},
              {"RNDV_SCHEME", "get_zcopy"},
              // Endpoints that must tell of a death take CMA only with this. CMA just claims it: a
              // peer may go on reading pages that were given back; its CRC throws that away.
              {"MEMORY_INVALIDATE", "y"}};
    default:
      return {{"TLS", "tcp"}};
  }
}

absl::StatusOr<UcxContext> StartUcx(const std::string& devices, PortRange ports,
                                    const UcxSettings& own) {
  UcxSettings settings = CommonSettings(devices, ports);
  settings.insert(settings.end(), own.begin(), own.end());
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK)
    return UcxError("reading the configuration", status);
  const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> owner(config,
                                                                           &ucp_config_release);
  for (const auto& [key, value] : settings)
    if (const ucs_status_t status = ucp_config_modify(config, key, value.c_str()); status != UCS_OK)
      return UcxError(absl::StrCat("setting ", key, " to ", value), status);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 0;
  ucp_context_h context = nullptr;
  if (const ucs_status_t status = ucp_init(&params, config, &context); status != UCS_OK)
    return UcxError(absl::StrCat("starting on device ", devices), status);
  return UcxContext(context);
}

// Whether UCX took anything of that name; it starts with what it finds, and does not say so.
bool HasResource(const UcxContext& context, const std::string& name) {
  char* bytes = nullptr;
  size_t size = 0;
  std::FILE* out = ::open_memstream(&bytes, &size);
  BATON_CHECK(out != nullptr);
  ucp_context_print_info(context.get(), out);
  std::fclose(out);
  const std::unique_ptr<char, decltype(&::free)> owner(bytes, &::free);
  return std::string_view(bytes, size).find(name) != std::string_view::npos;
}

absl::StatusOr<UcxContext> StartRdma(const in_addr& host, const std::string& device,
                                     PortRange ports) {
  ASSIGN_OR_RETURN(const RdmaPort rdma, FindRdmaPort(host, device));
  ASSIGN_OR_RETURN(UcxContext context, StartUcx(absl::StrCat(rdma.name, ",", device), ports,
                                                SettingsOf(KvTransport::kRdma, rdma)));
  if (HasResource(context, "/" + rdma.name)) return context;
  return absl::FailedPreconditionError(absl::StrCat(
      "UCX does not take the RDMA device ", rdma.name, ", which has the address of ", device,
      ": install ibverbs-providers, let this process open /dev/infiniband/uverbs*, and raise the "
      "limit of locked memory (ulimit -l), or set kvtransfer.transport to tcp"));
}

}  // namespace

absl::Status UcxError(std::string_view what, ucs_status_t status) {
  return absl::UnavailableError(
      absl::StrCat("UCX: ", std::string(what), ": ", ucs_status_string(status)));
}

absl::Status CheckPorts(sockaddr_in host, PortRange ports) {
  if (ports.first == 0) return absl::OkStatus();
  int n_free = 0;
  for (int port = ports.first; port <= ports.last && n_free < 2; ++port)
    n_free += IsFree(host, port);
  if (n_free == 2) return absl::OkStatus();
  host.sin_port = 0;
  return absl::UnavailableError(absl::StrCat("KV transfer needs two free ports at ",
                                             std::string(HostOf(FormatSocketAddress(host))),
                                             ", kvtransfer.ports ", ports.ToString(), " has ",
                                             n_free, ": give two for each worker of the machine"));
}

absl::StatusOr<UcxContext> MakeUcxContext(const in_addr& host, PortRange ports,
                                          KvTransport transport) {
  ASSIGN_OR_RETURN(const std::string device, DeviceOf(host));
  TakeBackSignals();
  if (transport == KvTransport::kAuto || transport == KvTransport::kRdma) {
    absl::StatusOr<UcxContext> rdma = StartRdma(host, device, ports);
    if (rdma.ok() || transport == KvTransport::kRdma) return rdma;
    if (!absl::IsNotFound(rdma.status()))
      LogWarn("KV goes by tcp, and not by RDMA: %s", std::string(rdma.status().message()));
  }
  ASSIGN_OR_RETURN(UcxContext context, StartUcx(device, ports, SettingsOf(transport, {})));
  if (transport == KvTransport::kShm && !HasResource(context, "cma/"))
    return absl::FailedPreconditionError(
        "kvtransfer.transport shm: UCX does not take CMA, by which one process reads another's "
        "memory (process_vm_readv): allow that call (seccomp, kernel.yama.ptrace_scope), or set "
        "kvtransfer.transport to tcp");
  return context;
}

absl::StatusOr<UcxWorker> MakeUcxWorker(const UcxContext& context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  if (const ucs_status_t status = ucp_worker_create(context.get(), &params, &worker);
      status != UCS_OK)
    return UcxError("making a worker", status);
  return UcxWorker(worker);
}

absl::Status SetUcxHandler(const UcxWorker& worker, unsigned id, ucp_am_recv_callback_t callback,
                           void* arg) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                     UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  param.id = id;
  param.cb = callback;
  param.arg = arg;
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker.get(), &param);
  return status == UCS_OK ? absl::OkStatus() : UcxError("setting a message handler", status);
}

absl::StatusOr<UcxListener> MakeUcxListener(const UcxWorker& worker, sockaddr_in address,
                                            PortRange ports,
                                            const ucp_listener_conn_handler_t& handler) {
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {reinterpret_cast<const sockaddr*>(&address), sizeof(address)};
  params.conn_handler = handler;
  ucp_listener_h listener = nullptr;
  ucs_status_t status = UCS_ERR_BUSY;
  for (int port = ports.first; port <= ports.last; ++port) {
    if (!IsFree(address, port)) continue;  // UCX would write a line of its own about it
    address.sin_port = htons(static_cast<uint16_t>(port));
    status = ucp_listener_create(worker.get(), &params, &listener);
    if (status == UCS_OK) return UcxListener(listener);
  }
  address.sin_port = 0;
  return UcxError(absl::StrCat("listening at ", std::string(HostOf(FormatSocketAddress(address))),
                               ", kvtransfer.ports ", ports.ToString()),
                  status);
}

std::string ClientOf(ucp_conn_request_h request) {
  ucp_conn_request_attr_t attributes{};
  attributes.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
  if (ucp_conn_request_query(request, &attributes) != UCS_OK ||
      attributes.client_address.ss_family != AF_INET)
    return "";
  return FormatSocketAddress(reinterpret_cast<const sockaddr_in&>(attributes.client_address));
}

absl::StatusOr<std::string> AddressOf(const UcxListener& listener) {
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (const ucs_status_t status = ucp_listener_query(listener.get(), &attributes); status != UCS_OK)
    return UcxError("asking for the listener's address", status);
  return FormatSocketAddress(reinterpret_cast<const sockaddr_in&>(attributes.sockaddr));
}

absl::StatusOr<sockaddr_in> ParseSocketAddress(const std::string& address) {
  sockaddr_in parsed{};
  parsed.sin_family = AF_INET;
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port > 65535 || ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &parsed.sin_addr) != 1)
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" is not an IPv4 address and port, as in 10.0.0.7:8100"));
  parsed.sin_port = htons(static_cast<uint16_t>(port));
  return parsed;
}

std::string FormatSocketAddress(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return absl::StrCat(text, ":", ntohs(address.sin_port));
}

}  // namespace baton
