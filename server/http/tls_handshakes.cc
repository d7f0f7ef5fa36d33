#include "server/http/tls_handshakes.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/http/tls_context.h"

namespace baton {
namespace {

constexpr unsigned char kHandshakeRecord = 0x16;  // the first byte of every TLS client
constexpr size_t kMaxDropped = 256 << 10;         // bytes read after an alert

}  // namespace

struct TlsHandshakes::State : std::enable_shared_from_this<TlsHandshakes::State> {
  struct Shake {
    Transport transport;
    std::shared_ptr<const TlsContext> context;
    absl::Time deadline;
    bool failed = false;  // the alert is out, input is dropped so that it is not lost to a reset
    size_t n_dropped = 0;
    bool closed = false;
    std::list<std::shared_ptr<Shake>>::iterator place;
  };
  using Handle = std::shared_ptr<Shake>;

  State(EventLoop* l, const Options& o, HttpStats* s, std::function<void(Transport)> when_secured,
        std::function<void(Transport)> when_plain)
      : loop(l),
        options(o),
        stats(s),
        secured(std::move(when_secured)),
        plain(std::move(when_plain)),
        timer(l) {}

  void Await(const Handle& shake, bool room);
  void Pump();
  void Step(const Handle& shake);
  bool LooksLikeTls(const Handle& shake);
  void Fail(const Handle& shake);
  void DropInput(const Handle& shake);
  Handle Oldest(uint64_t newcomer) const;
  void Remove(const Handle& shake);
  void End(const Handle& shake, TlsResult result);
  void Count(TlsResult result) { ++stats->handshakes[static_cast<size_t>(result)]; }
  void SetTimer();

  EventLoop* loop;
  const Options options;
  HttpStats* stats;
  std::function<void(Transport)> secured, plain;
  EventLoop::Timer timer;
  std::list<Handle> all;  // the oldest first, whose deadline is the next
  std::deque<Handle> ready;
  bool pumping = false;
};

void TlsHandshakes::State::Await(const Handle& shake, bool room) {
  const auto go_on = [self = shared_from_this(), shake](const Transport::Error& error) {
    if (error || shake->closed) return;
    self->ready.push_back(shake);
    if (!std::exchange(self->pumping, true)) self->loop->Post([self] { self->Pump(); });
  };
  if (room) {
    shake->transport.AwaitRoom(go_on);
  } else {
    shake->transport.AwaitInput(go_on);
  }
}

// A signature can take a millisecond: whoever else waits for the loop comes in between.
void TlsHandshakes::State::Pump() {
  pumping = false;
  if (ready.empty()) return;
  const Handle shake = std::move(ready.front());
  ready.pop_front();
  if (!ready.empty()) {
    pumping = true;
    loop->Post([self = shared_from_this()] { self->Pump(); });
  }
  if (!shake->closed) Step(shake);
}

void TlsHandshakes::State::Step(const Handle& shake) {
  if (shake->failed) return DropInput(shake);
  if (!shake->transport.is_tls()) {
    if (!LooksLikeTls(shake)) return;
    shake->transport.Secure(
        std::make_unique<TlsSession>(std::move(shake->context), shake->transport.native_handle()));
  }
  switch (shake->transport.tls()->Handshake()) {
    case TlsSession::Progress::kDone:
      Count(TlsResult::kOk);
      Remove(shake);
      secured(std::move(shake->transport));
      return;
    case TlsSession::Progress::kWantsInput:
      return Await(shake, /*room=*/false);
    case TlsSession::Progress::kWantsRoom:
      return Await(shake, /*room=*/true);
    case TlsSession::Progress::kEnded:
    case TlsSession::Progress::kFailed:
      return Fail(shake);
  }
}

// False: it does not, and has been dealt with.
bool TlsHandshakes::State::LooksLikeTls(const Handle& shake) {
  unsigned char first = 0;
  const ssize_t n = ::recv(shake->transport.native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    Await(shake, /*room=*/false);
  } else if (n <= 0) {
    End(shake, TlsResult::kGone);
  } else if (first == kHandshakeRecord) {
    return true;
  } else if (absl::ascii_isupper(first)) {
    Count(TlsResult::kPlainHttp);
    Remove(shake);
    plain(std::move(shake->transport));
  } else {
    End(shake, TlsResult::kNotTls);
  }
  return false;
}

// Closing with unread input would reset the connection and lose the alert.
void TlsHandshakes::State::Fail(const Handle& shake) {
  const TlsResult result = shake->transport.tls()->failure();
  Count(result);
  LogDebug("tls handshake failed: %s", std::string(NameOf(result)));
  shake->failed = true;
  ::shutdown(shake->transport.native_handle(), SHUT_WR);
  DropInput(shake);
}

void TlsHandshakes::State::DropInput(const Handle& shake) {
  std::array<char, 16 << 10> dropped;
  const ssize_t n =
      ::recv(shake->transport.native_handle(), dropped.data(), dropped.size(), MSG_DONTWAIT);
  if (n > 0) shake->n_dropped += static_cast<size_t>(n);
  const bool may_come = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  if (may_come && shake->n_dropped < kMaxDropped) return Await(shake, /*room=*/false);
  Remove(shake);
  shake->transport.Close();
}

// Returns who makes room for a newcomer: an address that has half of all makes room itself.
TlsHandshakes::State::Handle TlsHandshakes::State::Oldest(uint64_t newcomer) const {
  const auto is_its_own = [&](const Handle& shake) { return shake->transport.peer() == newcomer; };
  if (2 * std::count_if(all.begin(), all.end(), is_its_own) < options.max) return all.front();
  return *std::find_if(all.begin(), all.end(), is_its_own);
}

void TlsHandshakes::State::Remove(const Handle& shake) {
  shake->closed = true;
  all.erase(shake->place);
  stats->shaking = static_cast<int64_t>(all.size());
}

void TlsHandshakes::State::End(const Handle& shake, TlsResult result) {
  if (!shake->failed) Count(result);  // else it was counted
  Remove(shake);
  shake->transport.Close();
}

void TlsHandshakes::State::SetTimer() {
  timer.Set(all.empty() ? absl::InfiniteFuture() : all.front()->deadline, [this] {
    const absl::Time now = MonotonicNow();
    while (!all.empty() && all.front()->deadline <= now) {
      const Handle oldest = all.front();
      End(oldest, TlsResult::kTimeout);
    }
    SetTimer();
  });
}

TlsHandshakes::TlsHandshakes(EventLoop* loop, const Options& options, HttpStats* stats,
                             std::function<void(Transport)> secured,
                             std::function<void(Transport)> plain)
    : state_(std::make_shared<State>(loop, options, stats, std::move(secured), std::move(plain))) {}

TlsHandshakes::~TlsHandshakes() {
  state_->timer.Cancel();
  while (!state_->all.empty()) {
    const State::Handle shake = state_->all.front();
    state_->Remove(shake);
    shake->transport.Close();
  }
}

void TlsHandshakes::Begin(Transport transport, std::shared_ptr<const TlsContext> context) {
  State& state = *state_;
  if (static_cast<int>(state.all.size()) >= state.options.max) {
    const State::Handle oldest = state.Oldest(transport.peer());
    state.End(oldest, TlsResult::kCrowded);
  }
  auto shake = std::make_shared<State::Shake>(
      State::Shake{.transport = std::move(transport),
                   .context = std::move(context),
                   .deadline = MonotonicNow() + state.options.deadline,
                   .place = {}});
  shake->place = state.all.insert(state.all.end(), shake);
  state.stats->shaking = static_cast<int64_t>(state.all.size());
  if (state.all.size() == 1) state.SetTimer();
  state.Await(shake, /*room=*/false);
}

}  // namespace baton
