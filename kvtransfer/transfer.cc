// The link thread: the only place of this room with threads, clocks and descriptors. One turn:
// commands, events of link and copier, timers, chunks to begin; then sleep until the mailbox, the
// link or the copier wakes it. UCX 1.13 can lose a wake-up, so the sleep is bounded while handoffs
// are open: by a fraction of the time since the last event, because frequent wake-ups take time
// from computing on the same CPU (1.5 % of it, every 2 ms).
#include "kvtransfer/transfer.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/log.h"

namespace baton {
namespace {

constexpr int64_t kMinSleepMs = 2, kMaxSleepMs = 20, kIdleSleepMs = 100;
constexpr int64_t kQuietPart = 4;                // a fourth
constexpr int64_t kShutDownGraceUs = 1'500'000;  // for peers to end operations under way

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transfer>> Transfer::StartOver(
    LinkMaker make_link, const TransferOptions& options, const TransferFacts& facts,
    const PoolView& pool, std::function<void(TransferEvent)> on_event, CopierMaker make_copier) {
  RETURN_IF_ERROR(TransferCore::Validate(options, facts, pool));
  std::unique_ptr<Transfer> transfer(new Transfer(options, facts, pool, std::move(on_event)));
  std::promise<absl::Status> started;
  std::future<absl::Status> result = started.get_future();
  transfer->thread_ = std::thread(
      [raw = transfer.get(), make_link = std::move(make_link), make_copier = std::move(make_copier),
       &started]() mutable { raw->Run(std::move(make_link), make_copier, std::move(started)); });
  ::pthread_setname_np(transfer->thread_.native_handle(), "baton-link");
  RETURN_IF_ERROR(result.get());
  return transfer;
}

Transfer::Transfer(const TransferOptions& options, const TransferFacts& facts, const PoolView& pool,
                   std::function<void(TransferEvent)> on_event)
    : options_(options),
      facts_(facts),
      pool_(pool),
      on_event_(std::move(on_event)),
      mail_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      // Every page of the pool can be named once per plane, plus room for commands of tickets.
      mailbox_(size_t(pool.n_pages) * (pool.planes.size() + 4) + 65'536, [this] { Wake(); }) {
  BATON_CHECK(mail_fd_ >= 0);
}

Transfer::~Transfer() {
  if (thread_.joinable()) {
    leaving_ = true;
    mailbox_.Close();  // wakes the thread
    thread_.join();
  }
  ::close(mail_fd_);
}

void Transfer::Post(TransferCommand command) { BATON_CHECK(mailbox_.TryPost(std::move(command))); }

TransferCounters Transfer::counters() const {
  std::lock_guard lock(counters_mutex_);
  return counters_;
}

std::vector<LinkReport> Transfer::links() const {
  std::lock_guard lock(counters_mutex_);
  return links_;
}

// --- the link thread

void Transfer::Wake() {
  const uint64_t one = 1;
  BATON_CHECK(::write(mail_fd_, &one, sizeof(one)) == sizeof(one));
}

void Transfer::Run(LinkMaker make_link, const CopierMaker& make_copier,
                   std::promise<absl::Status> started) {
  absl::StatusOr<std::unique_ptr<Link>> made = make_link();
  if (!made.ok()) return started.set_value(made.status());
  link_ = *std::move(made);
  std::unique_ptr<CellCopier> copier;
  if (make_copier) copier = make_copier([this] { Wake(); });
  core_ = std::make_unique<TransferCore>(options_, facts_, pool_, link_.get(), on_event_,
                                         std::move(copier));
  address_ = link_->address();
  started.set_value(absl::OkStatus());
  while (!leaving_) Turn();
  Leave();
  link_.reset();  // before the slots that its operations may name
  core_.reset();
}

void Transfer::Turn() {
  bool moved = DrainMail();
  moved |= link_->Poll(&link_events_);
  for (LinkEvent& event : link_events_) core_->Handle(std::move(event), NowUs());
  link_events_.clear();
  moved |= core_->PollCopier(NowUs());
  core_->Tick(NowUs());
  moved |= core_->Pump(NowUs());
  PublishCounters();
  if (moved) moved_us_ = NowUs();
  if (!moved && link_->Arm()) Sleep();
}

bool Transfer::DrainMail() {
  const bool any = mailbox_.Drain(&commands_);
  for (TransferCommand& command : commands_) core_->Handle(std::move(command), NowUs());
  commands_.clear();
  return any;
}

void Transfer::Sleep() {
  const int64_t quiet_ms = (NowUs() - moved_us_) / 1000;
  const int64_t max_ms =
      core_->busy() ? std::clamp(quiet_ms / kQuietPart, kMinSleepMs, kMaxSleepMs) : kIdleSleepMs;
  std::array<pollfd, 2> fds{{{mail_fd_, POLLIN, 0}, {link_->wake_fd(), POLLIN, 0}}};
  ::poll(fds.data(), fds.size(), static_cast<int>(max_ms));
  uint64_t count;
  if (fds[0].revents != 0) BATON_CHECK(::read(mail_fd_, &count, sizeof(count)) == sizeof(count));
}

// Ends open handoffs, tells the peers, gives the pages back.
void Transfer::Leave() {
  DrainMail();
  core_->ShutDown(NowUs());
  TurnWhileBusy();
  core_->CloseConnections(NowUs());
  TurnWhileBusy();
  if (core_->busy())
    LogError("kv transfer: operations do not end although their connections are closed");
  core_->GiveLentPagesBack();
  PublishCounters();
}

void Transfer::TurnWhileBusy() {
  const int64_t started_us = NowUs();
  while (core_->busy() && NowUs() - started_us < kShutDownGraceUs) Turn();
}

void Transfer::PublishCounters() {
  std::lock_guard lock(counters_mutex_);
  counters_ = core_->counters();
  if (links_version_ == core_->links().version()) return;
  links_version_ = core_->links().version();
  links_ = core_->links().links();
}

}  // namespace baton
