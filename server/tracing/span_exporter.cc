#include "server/tracing/span_exporter.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace baton {
namespace {

constexpr int64_t kBatchBytes = 256 << 10;  // a batch ends with the request that reaches this
constexpr char kTail[] = "]}]}]}";          // of a request, after its spans
constexpr absl::Duration kMaxPause = absl::Seconds(30);
constexpr absl::Duration kLastTimeout = absl::Seconds(1);

// Statuses of a collector that wants to be asked again later, by OTLP's specification.
bool IsRetryable(int status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

}  // namespace

SpanExporter::SpanExporter(const TracingOptions& options, CollectorAddress address,
                           std::string head, Counts counts)
    : options_(options),
      head_(std::move(head)),
      counts_(std::move(counts)),
      client_(std::move(address)),
      thread_([this] { Run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "baton-spans");
}

SpanExporter::~SpanExporter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void SpanExporter::Add(SpanList spans) {
  const auto bytes = static_cast<int64_t>(spans.json.size());
  std::unique_lock lock(mutex_);
  if (waiting_bytes_ + bytes > options_.max_waiting) {
    lock.unlock();
    counts_.dropped(spans.n);
    return;
  }
  const bool was_full = waiting_bytes_ >= kBatchBytes;
  waiting_bytes_ += bytes;
  waiting_.push_back(std::move(spans));
  const bool wakes = waiting_.size() == 1 || (!was_full && waiting_bytes_ >= kBatchBytes);
  lock.unlock();
  if (wakes) changed_.notify_one();
}

SpanList SpanExporter::TakeBatch() {
  SpanList batch;
  while (!waiting_.empty() && static_cast<int64_t>(batch.json.size()) < kBatchBytes) {
    const SpanList& next = waiting_.front();
    waiting_bytes_ -= static_cast<int64_t>(next.json.size());
    absl::StrAppend(&batch.json, batch.n == 0 ? "" : ",", next.json);
    batch.n += next.n;
    waiting_.pop_front();
  }
  return batch;
}

void SpanExporter::Run() {
  absl::Duration pause = options_.pause;
  SpanList batch;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [&] { return stopping_ || batch.n > 0 || !waiting_.empty(); });
    // Gathers a batch; or gives the collector time, which has not taken this one.
    changed_.wait_for(lock, absl::ToChronoNanoseconds(pause),
                      [&] { return stopping_ || (batch.n == 0 && waiting_bytes_ >= kBatchBytes); });
    if (batch.n == 0) batch = TakeBatch();
    if (batch.n == 0 || (stopping_ && !is_reached_)) break;
    const absl::Duration timeout = stopping_ ? kLastTimeout : options_.timeout;
    lock.unlock();
    const bool is_done = Send(batch, timeout);
    lock.lock();
    pause = is_done ? options_.pause : std::min(2 * pause, kMaxPause);
    if (is_done) batch = {};
  }
  for (const SpanList& left : waiting_) batch.n += left.n;
  if (batch.n > 0) counts_.dropped(batch.n);
}

bool SpanExporter::Send(const SpanList& batch, absl::Duration timeout) {
  const auto status = client_.Post(absl::StrCat(head_, batch.json, kTail), timeout);
  const bool is_taken = status.ok() && *status / 100 == 2;
  const bool waits = !status.ok() || IsRetryable(*status);
  if (is_taken != is_reached_) {
    if (is_taken)
      LogInfo("the collector of traces takes spans again");
    else
      LogWarn("traces: %s; spans %s, and serving goes on",
              status.ok() ? absl::StrCat("the collector answers ", *status)
                          : std::string(status.status().message()),
              waits ? "wait, then are dropped" : "are dropped");
  }
  is_reached_ = is_taken;
  if (waits) return false;
  (is_taken ? counts_.sent : counts_.dropped)(batch.n);
  return true;
}

}  // namespace baton
