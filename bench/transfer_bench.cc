#include "bench/transfer_bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/median.h"
#include "common/clock.h"
#include "engine/kv/kv_arena.h"
#include "kvtransfer/links/ucx_link.h"
#include "kvtransfer/transfer.h"
#include "lab/paced_link.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kTcpBytes = 256 << 20;  // sent again and again: far more than any cache

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Returns the CPU seconds of all threads of this process.
double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// How two ends are connected.
struct Way {
  bool has_macs = false;
  double bytes_per_second = 0;  // 0: as fast as it goes
  std::string host = "127.0.0.1";
  KvTransport transport = KvTransport::kTcp;
};

// One Transfer with a pool, and a queue of its events.
class End {
 public:
  static absl::StatusOr<std::unique_ptr<End>> Make(Incarnation incarnation, int32_t n_pages,
                                                   int n_planes, int64_t cell_bytes,
                                                   const Way& way) {
    ASSIGN_OR_RETURN(std::unique_ptr<KvArena> arena,
                     KvArena::Map(int64_t{n_pages} * n_planes * cell_bytes));
    std::unique_ptr<End> end(new End(std::move(arena), n_pages, n_planes, cell_bytes));
    const TransferFacts facts{.incarnation = incarnation};
    TransferOptions options;
    options.trusted_cidrs = way.has_macs ? "" : "0.0.0.0/0";
    const UcxLinkOptions link{.transport = way.transport};
    ASSIGN_OR_RETURN(
        end->transfer_,
        Transfer::StartOver(Paced([host = way.host, link] { return MakeUcxLink(host, link); },
                                  {.bytes_per_second = way.bytes_per_second}),
                            options, facts, end->pool_,
                            [e = end.get()](auto ev) { e->Put(std::move(ev)); }));
    return end;
  }

  Transfer& transfer() { return *transfer_; }
  std::byte* bytes() { return arena_->base(); }
  size_t n_bytes() const { return static_cast<size_t>(pool_.page_stride * pool_.n_pages); }
  template <typename E>
  absl::StatusOr<E> Wait() {
    std::unique_lock lock(mutex_);
    std::optional<E> found;
    const auto is_here = [&] {
      for (; !events_.empty() && !found; events_.pop_front())
        if (E* event = std::get_if<E>(&events_.front())) found = std::move(*event);
      return found.has_value();
    };
    if (!changed_.wait_for(lock, std::chrono::seconds(30), is_here))
      return absl::DeadlineExceededError("the transfer benchmark got no answer in 30 s");
    return *std::move(found);
  }

 private:
  End(std::unique_ptr<KvArena> arena, int32_t n_pages, int n_planes, int64_t cell_bytes)
      : arena_(std::move(arena)) {
    pool_ = {.base = arena_->base(),
             .page_stride = n_planes * cell_bytes,
             .n_pages = n_pages,
             .planes = {}};
    for (int plane = 0; plane < n_planes; ++plane)
      pool_.planes.push_back({plane * cell_bytes, cell_bytes});
  }
  void Put(TransferEvent event) {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_one();
  }

  std::unique_ptr<KvArena> arena_;  // as workers have it, with huge pages
  PoolView pool_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TransferEvent> events_;
  std::unique_ptr<Transfer> transfer_;  // destroyed first, because it puts events
};

struct Cost {
  double seconds = 0, cpu_seconds = 0;
};

// Hands over the whole source pool as prefill does: layer after layer.
absl::StatusOr<Cost> HandOver(End& source, End& sink, uint64_t n, int32_t n_pages, int n_planes) {
  Ticket ticket{.id = {n, 1},
                .epoch = 1,
                .request_id = n,
                .source = 1,
                .sink = 2,
                .promise = {n, 1},
                .kv_pages = n_pages,
                .promise_pages = n_pages,
                .n_pages = n_pages,
                .expires_us = absl::ToUnixMicros(MonotonicNow() + absl::Hours(1))};
  SignTicket(ClusterKey{}, ticket);
  std::vector<int32_t> pages(static_cast<size_t>(n_pages));
  std::iota(pages.begin(), pages.end(), 0);
  sink.transfer().Post(LendPages{pages, 0});
  const double cpu_begin = CpuSeconds();
  const Clock::time_point begin = Clock::now();
  source.transfer().Post(OpenHandoff{ticket, 2, sink.transfer().address()});
  for (int plane = 0; plane < n_planes; ++plane)
    source.transfer().Post(SendCells{.ticket_id = ticket.id, .plane = plane, .pages = pages});
  source.transfer().Post(CommitHandoff{ticket.id, {}});
  ASSIGN_OR_RETURN(const HandoffArrived arrived, sink.Wait<HandoffArrived>());
  const Cost cost{SecondsSince(begin), CpuSeconds() - cpu_begin};
  ASSIGN_OR_RETURN(const HandoffEnded ended, source.Wait<HandoffEnded>());
  RETURN_IF_ERROR(ended.status);
  const size_t page_bytes = source.n_bytes() / pages.size();
  for (size_t i = 0; i < pages.size(); ++i)
    if (std::memcmp(source.bytes() + i * page_bytes,
                    sink.bytes() + static_cast<size_t>(arrived.pages[i]) * page_bytes,
                    page_bytes) != 0)
      return absl::DataLossError("the transfer benchmark moved wrong bytes");
  return cost;
}

// The speed between two plain sockets, one thread each, 1 MiB calls.
struct TcpSpeed {
  double gb_per_second = 0, cpu_seconds_per_gb = 0;
};
absl::StatusOr<TcpSpeed> MeasureTcp(double seconds) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener, raw, length) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, raw, &length) != 0)
    return absl::UnavailableError("the transfer benchmark cannot listen on loopback");
  const int to = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(to, raw, length) != 0)
    return absl::UnavailableError("the transfer benchmark cannot connect on loopback");
  const int from = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  ::close(listener);
  constexpr size_t kCall = 1 << 20;
  std::thread sender([to, seconds] {
    std::vector<char> memory(kTcpBytes, 1);
    const Clock::time_point begin = Clock::now();
    for (size_t at = 0; SecondsSince(begin) < seconds; at = (at + kCall) % memory.size())
      for (size_t done = 0; done < kCall;) {
        const ssize_t n = ::send(to, memory.data() + at + done, kCall - done, MSG_NOSIGNAL);
        if (n <= 0) break;
        done += static_cast<size_t>(n);
      }
    ::close(to);
  });
  std::vector<char> memory(kTcpBytes);
  size_t total = 0, at = 0;
  const double cpu_begin = CpuSeconds();
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const ssize_t n = ::recv(from, memory.data() + at, kCall, MSG_WAITALL);
    if (n <= 0) break;
    total += static_cast<size_t>(n);
    at = (at + kCall) % memory.size();
  }
  const double gb = static_cast<double>(total) * 1e-9;
  const TcpSpeed speed{gb / SecondsSince(begin), (CpuSeconds() - cpu_begin) / gb};
  sender.join();
  ::close(from);
  return speed;
}

constexpr int64_t kCellBytes[] = {8 << 10, 64 << 10, 256 << 10, 1 << 20};

struct CellSpeed {
  double gb_per_second = 0, cpu_seconds_per_gb = 0;
};

// Two ends with one way between them, whose handoffs are measured.
class MeasuredWay {
 public:
  static absl::StatusOr<MeasuredWay> Make(int64_t cell_bytes, const TransferBenchOptions& options,
                                          const Way& way) {
    MeasuredWay made;
    made.has_macs_ = way.has_macs;
    made.n_pages_ = static_cast<int32_t>(options.handoff_bytes / kPlanes / cell_bytes);
    ASSIGN_OR_RETURN(made.source_, End::Make(1, made.n_pages_, kPlanes, cell_bytes, way));
    ASSIGN_OR_RETURN(made.sink_, End::Make(2, made.n_pages_, kPlanes, cell_bytes, way));
    for (size_t i = 0; i < made.source_->n_bytes(); ++i)
      made.source_->bytes()[i] = static_cast<std::byte>(i * 31 >> 3);
    return made;
  }

  // Returns the seconds of one more handoff.
  absl::StatusOr<double> HandOverOnce() {
    ASSIGN_OR_RETURN(const Cost one, HandOver(*source_, *sink_, ++n_, n_pages_, kPlanes));
    best_.seconds = std::min(best_.seconds, one.seconds);
    best_.cpu_seconds = std::min(best_.cpu_seconds, one.cpu_seconds);
    return one.seconds;
  }
  // The best of the handoffs so far.
  absl::StatusOr<CellSpeed> Best() const {
    if (const bool has_macs = source_->transfer().counters().signed_chunks > 0;
        has_macs != has_macs_)
      return absl::InternalError("the transfer benchmark did not get the MACs that it asked for");
    const double gb = static_cast<double>(source_->n_bytes()) * 1e-9;
    return CellSpeed{gb / best_.seconds, best_.cpu_seconds / gb};
  }

 private:
  static constexpr int kPlanes = 16;

  MeasuredWay() = default;

  std::unique_ptr<End> source_, sink_;
  int32_t n_pages_ = 0;
  bool has_macs_ = false;
  uint64_t n_ = 0;
  Cost best_{1e30, 1e30};
};

// The best of several handoffs.
absl::StatusOr<CellSpeed> MeasureHandoffs(int64_t cell_bytes, const TransferBenchOptions& options,
                                          const Way& way) {
  ASSIGN_OR_RETURN(MeasuredWay measured, MeasuredWay::Make(cell_bytes, options, way));
  const Clock::time_point begin = Clock::now();
  for (int n = 0; n < 2 || SecondsSince(begin) < options.seconds; ++n)
    RETURN_IF_ERROR(measured.HandOverOnce().status());
  return measured.Best();
}

absl::Status MeasureCell(int64_t cell_bytes, const TransferBenchOptions& options, double limit,
                         std::vector<KernelResult>* results) {
  ASSIGN_OR_RETURN(
      const CellSpeed speed,
      MeasureHandoffs(cell_bytes, options, {.host = options.host, .transport = options.transport}));
  const std::string cell = absl::StrCat(cell_bytes >> 10, "k");
  results->push_back({absl::StrCat("transfer_", cell), speed.gb_per_second, "GB/s", limit, ""});
  results->push_back({absl::StrCat("cpu_", cell), speed.cpu_seconds_per_gb, "s/GB", 0, ""});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<KernelResult>> MeasureMacs(const TransferBenchOptions& options) {
  constexpr double k10Gbit = 10e9 / 8;
  std::vector<KernelResult> results;
  for (const int64_t cell_bytes : {64 << 10, 1 << 20}) {
    for (const double rate : {0.0, k10Gbit}) {
      ASSIGN_OR_RETURN(const CellSpeed without,
                       MeasureHandoffs(cell_bytes, options, {.bytes_per_second = rate}));
      ASSIGN_OR_RETURN(
          const CellSpeed with,
          MeasureHandoffs(cell_bytes, options, {.has_macs = true, .bytes_per_second = rate}));
      const std::string cell = absl::StrCat(rate > 0 ? "10gbit_" : "", cell_bytes >> 10, "k");
      results.push_back(
          {absl::StrCat("mac_", cell), with.gb_per_second, "GB/s", without.gb_per_second, ""});
      results.push_back({absl::StrCat("cpu_mac_", cell), with.cpu_seconds_per_gb, "s/GB", 0, ""});
      results.push_back({absl::StrCat("cpu_", cell), without.cpu_seconds_per_gb, "s/GB", 0, ""});
    }
  }
  return results;
}

absl::StatusOr<KernelResult> MeasureSmall(const TransferBenchOptions& options) {
  const Way way{.host = options.host, .transport = options.transport};
  ASSIGN_OR_RETURN(const auto source, End::Make(1, 1, 8, 8 << 10, way));
  ASSIGN_OR_RETURN(const auto sink, End::Make(2, 1, 8, 8 << 10, way));
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  for (uint64_t n = 1; n <= 10 || SecondsSince(begin) < options.seconds; ++n) {
    ASSIGN_OR_RETURN(const Cost one, HandOver(*source, *sink, n, 1, 8));
    times.push_back(one.seconds);
  }
  return KernelResult{"handoff_64k", MedianOf(std::move(times)) * 1e3, "ms", 0, ""};
}

}  // namespace

absl::StatusOr<std::vector<KernelResult>> MeasureTransfer(const TransferBenchOptions& options) {
  if (options.macs) return MeasureMacs(options);
  std::vector<KernelResult> results;
  ASSIGN_OR_RETURN(const TcpSpeed tcp, MeasureTcp(options.seconds));
  results.push_back({"cpu_tcp", tcp.cpu_seconds_per_gb, "s/GB", 0, ""});
  for (const int64_t cell_bytes : kCellBytes) {
    RETURN_IF_ERROR(MeasureCell(cell_bytes, options, tcp.gb_per_second, &results));
  }
  ASSIGN_OR_RETURN(results.emplace_back(), MeasureSmall(options));
  return results;
}

absl::StatusOr<std::vector<KernelResult>> MeasureBesideTcp(const TransferBenchOptions& options) {
  std::vector<KernelResult> results;
  for (const int64_t cell_bytes : kCellBytes) {
    Way way{.host = options.host};
    ASSIGN_OR_RETURN(MeasuredWay tcp, MeasuredWay::Make(cell_bytes, options, way));
    way.transport = options.transport;
    ASSIGN_OR_RETURN(MeasuredWay other, MeasuredWay::Make(cell_bytes, options, way));
    std::vector<double> gains;
    const Clock::time_point begin = Clock::now();
    while (gains.size() < 2 || SecondsSince(begin) < 2 * options.seconds) {
      ASSIGN_OR_RETURN(const double tcp_seconds, tcp.HandOverOnce());
      ASSIGN_OR_RETURN(const double seconds, other.HandOverOnce());
      gains.push_back(tcp_seconds / seconds);
    }
    ASSIGN_OR_RETURN(const CellSpeed by_tcp, tcp.Best());
    ASSIGN_OR_RETURN(const CellSpeed by_other, other.Best());
    const std::string cell = absl::StrCat(cell_bytes >> 10, "k");
    results.push_back({absl::StrCat("beside_tcp_", cell), by_other.gb_per_second, "GB/s",
                       by_tcp.gb_per_second, ""});
    results.push_back({absl::StrCat("gain_", cell), MedianOf(std::move(gains)), "x", 0, ""});
    results.push_back({absl::StrCat("cpu_", cell), by_other.cpu_seconds_per_gb, "s/GB", 0, ""});
    results.push_back({absl::StrCat("cpu_tcp_", cell), by_tcp.cpu_seconds_per_gb, "s/GB", 0, ""});
  }
  return results;
}

absl::Status RunTransferBench(const TransferBenchOptions& options) {
  const bool beside_tcp = !options.macs && options.transport != KvTransport::kTcp;
  ASSIGN_OR_RETURN(const std::vector<KernelResult> results,
                   beside_tcp ? MeasureBesideTcp(options) : MeasureTransfer(options));
  PrintKernelTable(beside_tcp     ? absl::StrCat("KV transfer over UCX ", NameOf(options.transport),
                                                 " at ", options.host, "; limit: by tcp, in turns")
                   : options.macs ? "KV with MACs over UCX tcp on loopback; limit: without MACs"
                                  : absl::StrCat("KV transfer over UCX tcp at ", options.host,
                                                 "; limit: bare TCP sockets on loopback"),
                   results);
  if (options.json) PrintKernelJson("", results);
  return absl::OkStatus();
}

}  // namespace baton
