#include "server/api/text_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch2/catch.hpp"

namespace baton {
namespace {

// A pool of one thread, which is held until Release; the names of jobs in the order of their runs.
struct HeldPool {
  explicit HeldPool(size_t max_jobs, size_t max_bytes)
      : pool({.n_threads = 1, .max_jobs = max_jobs, .max_bytes = max_bytes}) {
    std::promise<void> begun;
    REQUIRE(pool.TryRun({}, 0, [&begun, held = release.get_future().share()] {
      begun.set_value();
      held.wait();
    }) != 0);
    begun.get_future().wait();
  }
  TextPool::JobId Add(uint64_t address, size_t bytes, const std::string& name = "",
                      uint64_t key = 0) {
    return pool.TryRun({address, key}, bytes, [this, name] {
      std::lock_guard lock(mutex);
      ran.push_back(name);
    });
  }
  ~HeldPool() {
    if (!released) release.set_value();
  }
  // Runs everything that waits and a last job.
  std::vector<std::string> Release() {
    released = true;
    release.set_value();
    std::promise<void> end;
    while (pool.load().jobs > 0) std::this_thread::yield();
    REQUIRE(pool.TryRun({}, 0, [&end] { end.set_value(); }) != 0);
    end.get_future().wait();
    return ran;
  }

  std::promise<void> release;
  bool released = false;
  std::mutex mutex;
  std::vector<std::string> ran;
  TextPool pool;  // goes first: its jobs use the others
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("text threads yield to the thread that streams wait for") {
  TextPool pool({.n_threads = 1});
  std::promise<int> nice;
  REQUIRE(pool.TryRun({}, 0, [&] { nice.set_value(::getpriority(PRIO_PROCESS, 0)); }) != 0);
  const int own = ::getpriority(PRIO_PROCESS, 0);
  CHECK(nice.get_future().get() == std::min(own + kTextNice, 19));
  CHECK(own == ::getpriority(PRIO_PROCESS, 0));
}

TEST_CASE("a client waits for one job of another, however many that has") {
  HeldPool held(1000, 1 << 20);
  for (int i = 0; i < 200; ++i) REQUIRE(held.Add(1, 100, "large") != 0);
  REQUIRE(held.Add(2, 1, "small") != 0);
  REQUIRE(held.Add(2, 1, "small") != 0);
  const Names ran = held.Release();
  REQUIRE(ran.size() == 202);
  CHECK(Names(ran.begin(), ran.begin() + 5) == Names{"large", "small", "large", "small", "large"});
}

TEST_CASE("keys share the turns of their address") {
  HeldPool held(1000, 1 << 20);
  for (const uint64_t key : {1, 2, 3, 4}) {  // as many as somebody cares to invent
    REQUIRE(held.Add(1, 1, "first", key) != 0);
    REQUIRE(held.Add(1, 1, "second", key) != 0);
  }
  for (int i = 0; i < 4; ++i) REQUIRE(held.Add(2, 1, "other") != 0);
  const Names ran = held.Release();
  REQUIRE(ran.size() == 12);
  CHECK(Names(ran.begin(), ran.begin() + 9) ==
        Names{"first", "other", "first", "other", "first", "other", "first", "other", "second"});
}

TEST_CASE("jobs of one client run in order") {
  HeldPool held(8, 100);
  for (const char* name : {"a", "b", "c"}) REQUIRE(held.Add(1, 1, name) != 0);
  CHECK(held.Release() == Names{"a", "b", "c"});
}

TEST_CASE("the queue is bounded in bytes and in jobs") {
  HeldPool held(4, 100);
  CHECK(held.Add(1, 100) != 0);
  CHECK(held.pool.load() == TextPool::Load{1, 100});
  CHECK(held.Add(2, 1) == 0);
  for (uint64_t address = 3; address < 6; ++address) CHECK(held.Add(address, 0) != 0);
  CHECK(held.Add(6, 0) == 0);  // four jobs wait
  CHECK(held.Release().size() == 4);
  CHECK(held.pool.load() == TextPool::Load());
}

TEST_CASE("a job beyond the bound waits alone, and nothing beside it") {
  HeldPool held(4, 100);
  REQUIRE(held.Add(1, 40, "small") != 0);
  CHECK(held.Add(2, 101) == 0);
  CHECK(held.Release() == Names{"small"});
  HeldPool empty(4, 100);
  REQUIRE(empty.Add(2, 101, "large") != 0);
  CHECK(empty.Add(1, 0) != 0);
  CHECK(empty.Add(3, 1) == 0);
  CHECK(empty.Release().front() == "large");
}

TEST_CASE("nobody fills the queue alone") {
  HeldPool held(10, 1000);
  int of_one_key = 0, of_others = 0;
  while (held.Add(1, 100) != 0) ++of_one_key;
  CHECK(of_one_key == 4);
  for (uint64_t key = 1; held.Add(1, 100, "", key) != 0; ++key) ++of_others;
  CHECK(of_others == 1);
  CHECK(held.Add(2, 500) != 0);  // in bytes, the other half is there for another address
  CHECK(held.Add(3, 1) == 0);
}

TEST_CASE("a dropped job is not run, and its place is free") {
  HeldPool held(3, 100);
  const TextPool::JobId first = held.Add(1, 60, "first");
  REQUIRE(held.Add(2, 30, "second") != 0);
  CHECK(held.Add(3, 60) == 0);
  held.pool.Drop(first);
  CHECK(held.pool.load() == TextPool::Load{1, 30});
  CHECK(held.Add(3, 60, "third") != 0);
  held.pool.Drop(first);    // no job any more
  held.pool.Drop(1 << 20);  // never was one
  CHECK(held.Release() == Names{"second", "third"});
}

}  // namespace baton
