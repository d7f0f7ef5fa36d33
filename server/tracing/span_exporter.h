// Sends spans to a collector as OTLP/HTTP in JSON (opentelemetry.io/docs/specs/otlp), in batches,
// on a thread of its own. What waits is bounded in bytes; what finds no room, and what the
// collector refuses, is dropped and counted. A collector that cannot be reached costs a line in the
// log and pauses that grow; the spans wait meanwhile.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "server/tracing/collector_client.h"
#include "server/tracing/tracing_options.h"

namespace baton {

// Objects of OTLP's type Span, with commas between them.
struct SpanList {
  std::string json{};
  int64_t n = 0;
};

class SpanExporter {
 public:
  // Told what became of spans, on any thread.
  struct Counts {
    std::function<void(int64_t n)> sent, dropped;
  };
  // head: what a request to the collector has before its spans, up to the bracket of their list.
  SpanExporter(const TracingOptions& options, CollectorAddress address, std::string head,
               Counts counts);
  // Sends another batch, if the collector took the last one; what is left is dropped.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  void Add(SpanList spans);  // any thread; never waits for the collector

 private:
  void Run();
  SpanList TakeBatch();  // with mutex_ held
  // True: the batch is done with, sent or dropped; false: try it again.
  bool Send(const SpanList& batch, absl::Duration timeout);

  const TracingOptions options_;
  const std::string head_;
  const Counts counts_;
  CollectorClient client_;  // the thread's
  bool is_reached_ = true;  // the same; also before the first batch
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<SpanList> waiting_;
  int64_t waiting_bytes_ = 0;  // without the batch under way
  bool stopping_ = false;
  std::thread thread_;  // last: starts when all others exist
};

}  // namespace baton
