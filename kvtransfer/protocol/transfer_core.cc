#include "kvtransfer/protocol/transfer_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvtransfer/protocol/host_copier.h"
#include "kvtransfer/protocol/networks.h"
#include "kvtransfer/protocol/port_range.h"

namespace baton {
namespace {

constexpr int64_t kLinksGrainUs = 20'000;  // as often as a worker reports its load

// The options as the pool lets them be.
TransferOptions Fit(TransferOptions options, const PoolView& pool) {
  options.window_bytes = std::max(options.window_bytes, options.chunk_bytes);
  options.chunk_bytes = std::max(options.chunk_bytes, LargestPlane(pool));
  // Slots for four windows keep several handoffs moving; more would only cost memory.
  if (options.slab_slots <= 0)
    options.slab_slots = static_cast<int32_t>(
        std::clamp<int64_t>(4 * options.window_bytes / options.chunk_bytes, 8, 64));
  return options;
}

template <typename Object, typename Event>
concept Takes = requires(Object& object, Event& event) {
  object.On(event, int64_t{});
};

}  // namespace

TransferCore::TransferCore(const TransferOptions& options, const TransferFacts& facts,
                           const PoolView& pool, Link* link,
                           std::function<void(TransferEvent)> on_event,
                           std::unique_ptr<CellCopier> copier)
    : setup_{Fit(options, pool), facts, pool, link,
             copier != nullptr ? std::move(copier) : std::make_unique<HostCopier>(pool)},
      on_event_(std::move(on_event)) {
  setup_.copier->RegisterPool(link);
}

absl::Status TransferCore::Validate(const TransferOptions& options, const TransferFacts& facts,
                                    const PoolView& pool) {
  const auto invalid = [](std::string text) { return absl::InvalidArgumentError(std::move(text)); };
  if (pool.base == nullptr || pool.n_pages <= 0 || pool.planes.empty())
    return invalid("KV transfer needs a pool with pages and planes");
  for (const PoolPlane& plane : pool.planes)
    if (plane.offset < 0 || plane.bytes <= 0 || plane.offset + plane.bytes > pool.page_stride)
      return invalid("KV transfer: a plane lies outside its page");
  if (LargestPlane(pool) > kMaxChunkBytes)
    return invalid(absl::StrCat("KV transfer: a plane of a page has ", LargestPlane(pool),
                                " bytes, more than a chunk can carry (", kMaxChunkBytes,
                                "); use smaller pages"));
  if (options.chunk_bytes <= 0 || options.chunk_bytes > kMaxChunkBytes)
    return invalid(absl::StrCat("KV transfer: chunk_bytes ", options.chunk_bytes, " is not in 1..",
                                kMaxChunkBytes));
  if (options.window_bytes <= 0 || options.hello_timeout_ms <= 0 || options.peer_timeout_ms <= 0 ||
      options.room_timeout_ms <= 0 || options.idle_timeout_ms <= 0)
    return invalid("KV transfer: window_bytes and timeouts must be positive");
  RETURN_IF_ERROR(PortRange::Parse(options.ports).status());
  RETURN_IF_ERROR(Networks::Parse(options.trusted_cidrs, "kvtransfer.trusted_cidrs").status());
  RETURN_IF_ERROR(Networks::Parse(options.allowed_cidrs, "kvtransfer.allowed_cidrs").status());
  if (facts.incarnation == 0) return invalid("KV transfer: incarnation must not be 0");
  return absl::OkStatus();
}

// ---- events in ----

void TransferCore::Handle(TransferCommand command, int64_t now_us) {
  Dispatch(command, now_us);
  Settle(now_us);
}

void TransferCore::Handle(LinkEvent event, int64_t now_us) {
  Dispatch(event, now_us);
  Settle(now_us);
}

bool TransferCore::PollCopier(int64_t now_us) {
  copied_.clear();
  if (!setup_.copier->Poll(&copied_)) return false;
  for (CopyEvent& event : copied_) {
    Dispatch(event, now_us);
    Settle(now_us);
  }
  return true;
}

template <typename Variant>
void TransferCore::Dispatch(Variant& event, int64_t now_us) {
  std::visit(
      [&]<typename Event>(Event& e) {
        const auto offer = [&]<typename Object>(Object& to) {
          if constexpr (Takes<Object, Event>) to.On(e, now_us);
        };
        static_assert(Takes<PeerConnections, Event> || Takes<Sources, Event> ||
                      Takes<Sinks, Event> || Takes<LinkStats, Event>);
        offer(connections_), offer(sources_), offer(sinks_), offer(links_);
      },
      event);
}

void TransferCore::Tick(int64_t now_us) {
  if (now_us - ticked_us_ < kTickUs) return;
  ticked_us_ = now_us;
  connections_.Tick(now_us);
  DispatchEffects(now_us);
  sources_.Tick(now_us);
  DispatchEffects(now_us);
  sinks_.Tick(now_us);
  Settle(now_us);
  EmitLinks(now_us);
}

bool TransferCore::Pump(int64_t now_us) {
  const bool more = sources_.Pump(now_us);
  EmitEvents();
  return more;
}

void TransferCore::ShutDown(int64_t now_us) {
  setup_.shutting_down = true;
  sources_.EndAll(now_us);
  sinks_.On(CancelPromises{}, now_us);
  Settle(now_us);
}

void TransferCore::CloseConnections(int64_t now_us) {
  connections_.CloseAll();
  Settle(now_us);
}

void TransferCore::GiveLentPagesBack() {
  ReclaimPages all{.n = receive_pool().in_pool()};
  sinks_.On(all, ticked_us_);
  EmitEvents();
}

void TransferCore::DispatchEffects(int64_t now_us) {
  std::vector<ConnectionEffect> effects;
  while (!(effects = connections_.TakeEffects()).empty())
    for (ConnectionEffect& effect : effects) Dispatch(effect, now_us);
}

void TransferCore::Settle(int64_t now_us) {
  DispatchEffects(now_us);
  sinks_.Settle(now_us);
  EmitEvents();
}

void TransferCore::EmitEvents() {
  for (TransferEvent& event : std::exchange(setup_.events, {})) on_event_(std::move(event));
}

void TransferCore::EmitLinks(int64_t now_us) {
  if (links_.version() == emitted_links_ || now_us - links_emitted_us_ < kLinksGrainUs) return;
  emitted_links_ = links_.version();
  LinksMeasured measured;
  for (const LinkReport& link : links_.links())
    if (link.rate.bytes_per_second >= 1) measured.links.push_back(link.rate);
  if (measured.links.empty()) return;
  links_emitted_us_ = now_us;
  on_event_(std::move(measured));
}

}  // namespace baton
