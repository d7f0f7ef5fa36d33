// The two ends of a control stream for tests. They wait for events with a limit instead of
// sleeping.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "proto/control_client.h"
#include "proto/control_server.h"

namespace baton {

inline WorkerAnnounce TestAnnounce(Incarnation incarnation) {
  WorkerAnnounce announce;
  announce.incarnation = incarnation;
  announce.name = "w" + std::to_string(incarnation);
  announce.transfer = {.incarnation = incarnation, .address = "127.0.0.1:1"};
  announce.page_tokens = 16;
  announce.max_context = 64;
  return announce;
}

// Queues events in order, for one waiting thread.
template <typename Event>
class EventQueue {
 public:
  void Add(Event event) {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  // Returns the next event. nullopt: none within the limit.
  std::optional<Event> NextAny(absl::Duration limit = absl::Seconds(10)) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, absl::ToChronoNanoseconds(limit),
                           [this] { return !events_.empty(); }))
      return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  // Returns the next event, which must be a Wanted.
  template <typename Wanted>
  std::optional<Wanted> Next(absl::Duration limit = absl::Seconds(10)) {
    std::optional<Event> event = NextAny(limit);
    if (!event.has_value()) return std::nullopt;
    INFO("event of kind " << event->index());
    REQUIRE(std::holds_alternative<Wanted>(*event));
    return std::get<Wanted>(*std::move(event));
  }
  size_t size() {
    std::lock_guard lock(mutex_);
    return events_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
};

// The router's end. Next takes events from the server when no taken event is left.
class RouterEnd {
 public:
  explicit RouterEnd(ControlServerOptions options = {}) {
    options.wake = [this] {
      std::lock_guard lock(mutex_);
      woken_ = true;
      changed_.notify_all();
    };
    auto started = ControlServer::Start(options);
    REQUIRE(started.ok());
    server = *std::move(started);
  }
  std::optional<ControlEvent> NextAny(absl::Duration limit = absl::Seconds(10)) {
    const absl::Time end = absl::Now() + limit;
    while (taken_.empty())
      if (!Take(end)) return std::nullopt;
    ControlEvent event = std::move(taken_.front());
    taken_.pop_front();
    return event;
  }
  template <typename Wanted>
  std::optional<Wanted> Next(absl::Duration limit = absl::Seconds(10)) {
    std::optional<ControlEvent> event = NextAny(limit);
    if (!event.has_value()) return std::nullopt;
    INFO("event of kind " << event->index());
    REQUIRE(std::holds_alternative<Wanted>(*event));
    return std::get<Wanted>(*std::move(event));
  }
  // Waits until the worker is connected and has announced itself.
  void AwaitWorker(Incarnation worker) {
    const auto connected = Next<WorkerConnected>();
    REQUIRE(connected.has_value());
    CHECK(connected->worker == worker);
    const auto first = Next<WorkerReported>();
    REQUIRE(first.has_value());
    REQUIRE(first->report.events.size() == 1);
    CHECK(std::get<WorkerAnnounce>(first->report.events[0]).incarnation == worker);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(server->port()); }

  std::unique_ptr<ControlServer> server;
  int n_signs_of_life = 0;  // empty reports; not among the events of Next
  EngineTurn engine;        // as the last of them told

 private:
  bool Take(absl::Time end) {
    std::vector<ControlEvent> events;
    while (!server->TakeEvents(&events)) {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_until(lock, absl::ToChronoTime(end), [this] { return woken_; }))
        return false;
      woken_ = false;
    }
    for (ControlEvent& event : events) {
      const auto* reported = std::get_if<WorkerReported>(&event);
      if (reported != nullptr && reported->report.events.empty()) {
        ++n_signs_of_life;
        engine = reported->report.engine;
      } else {
        taken_.push_back(std::move(event));
      }
    }
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  std::deque<ControlEvent> taken_;
};

// The worker's end.
struct WorkerEnd {
  WorkerEnd(const std::string& address, Incarnation incarnation,
            const std::function<void(ControlClientOptions*)>& change = nullptr) {
    ControlClientOptions options;
    options.router_address = address;
    options.announce = TestAnnounce(incarnation);
    options.on_event = [this](RouterEvent event) {
      if (const auto* connected = std::get_if<RouterConnected>(&event)) stream = connected->stream;
      events.Add(std::move(event));
      return true;
    };
    if (change != nullptr) change(&options);
    client = std::make_unique<ControlClient>(std::move(options));
  }
  bool Send(const WorkerReport& report) { return client->Send(stream, report); }

  std::atomic<uint64_t> stream = 0;  // the newest
  EventQueue<RouterEvent> events;
  std::unique_ptr<ControlClient> client;
};

// Sends a message each way.
inline void CheckTalks(RouterEnd* router, WorkerEnd* worker, Incarnation id) {
  REQUIRE(worker->Send({.events = {TokenOut{.request_id = 9, .position = 7}}}));
  const auto reported = router->Next<WorkerReported>();
  REQUIRE(reported.has_value());
  CHECK(reported->worker == id);
  router->server->Send(id, {CancelRequest{.request_id = 9}});
  CHECK(worker->events.Next<RouterMessages>().has_value());
}

// A control_peer process; killed at the end.
class PeerProcess {
 public:
  explicit PeerProcess(const std::vector<std::string>& arguments) {
    int in[2], out[2];
    REQUIRE(::pipe2(in, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
    std::vector<char*> argv = {const_cast<char*>(BATON_CONTROL_PEER)};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.data()));
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    stdin_ = in[1];
    stdout_ = ::fdopen(out[0], "r");
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess() {
    Kill(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(stdin_);
    std::fclose(stdout_);
  }
  int ReadPort() {
    int port = 0;
    REQUIRE(std::fscanf(stdout_, "%d", &port) == 1);
    return port;
  }
  void Kill(int signal) { ::kill(pid_, signal); }

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
  FILE* stdout_ = nullptr;
};

inline int CountEntries(const char* folder) {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++n;
  return n;
}
inline int CountThreads() { return CountEntries("/proc/self/task"); }
inline int CountDescriptors() { return CountEntries("/proc/self/fd"); }

}  // namespace baton
