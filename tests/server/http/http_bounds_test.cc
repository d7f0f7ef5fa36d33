// Bounds of an HttpServer's connections: how many, from where, and how slowly answers may be taken.
#include <sys/resource.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "server/http/answer_rate.h"
#include "server/http/descriptor_limit.h"
#include "tests/server/http/http_rig.h"

namespace baton {
namespace {

TEST_CASE("a full server gives up who has been idle longest, and none that is owed an answer") {
  HttpServerOptions options;
  options.max_connections = 3;
  options.max_per_address = 100;
  HttpRig rig(options, GENERATE(Over::kTcp, Over::kTls, Over::kUnix));
  rig.answers.body_bytes = 3;
  const auto busy = rig.Connect(), idlest = rig.Connect(), idle = rig.Connect();
  REQUIRE(busy->Send(Get("/never")));
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 1; }));
  for (const auto& client : {&idlest, &idle}) {
    REQUIRE((*client)->Send(Get("/now")));
    REQUIRE((*client)->ReadUntil("xxx"));
    (*client)->received.clear();
  }
  const auto late = rig.Connect();
  REQUIRE(late->Send(Get("/never")));
  CHECK(idlest->ReadToEnd());
  CHECK(idlest->received.empty());
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 4; }));
  REQUIRE(idle->Send(Get("/never")));
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 5; }));
  // Now all are owed an answer.
  const auto refused = rig.Connect();
  CHECK(refused->ReadToEnd());
  CHECK(refused->received.find("503") != std::string::npos);
  const HttpStats stats = rig.Stats();
  CHECK(stats.idle_closed == 1);
  CHECK(stats.refused == 1);
  CHECK(rig.answers.n_gone == 0);
}

TEST_CASE("an address has half of the connections by default, a Unix socket all") {
  HttpServerOptions options;
  options.max_connections = 4;
  HttpRig rig(options);
  const auto a = rig.Connect(), b = rig.Connect();
  REQUIRE(rig.WaitFor([&] { return rig.server->n_connections() == 2; }));
  const auto third = rig.Connect();
  CHECK(third->ReadToEnd());
  CHECK(third->received.find("503") != std::string::npos);
  a->Close();
  REQUIRE(rig.WaitFor([&] { return rig.server->n_connections() == 1; }));
  const auto fourth = rig.Connect();
  REQUIRE(fourth->Send(Get("/none")));
  CHECK(fourth->ReadUntil("404"));

  HttpRig local(options, Over::kUnix);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(local.Connect());
    REQUIRE(clients.back()->Send(Get("/none")));
    CHECK(clients.back()->ReadUntil("404"));
  }
}

TEST_CASE("a key that has all its connections gives up its idlest, and no other key's") {
  HttpServerOptions options;
  options.max_per_key = 2;
  HttpRig rig(options, GENERATE(Over::kTcp, Over::kTls, Over::kUnix));
  rig.answers.body_bytes = 3;
  const std::string a = "x-api-key: a\r\n", b = "x-api-key: b\r\n";
  const auto take = [&](const std::unique_ptr<RawClient>& client, const std::string& key) {
    client->received.clear();
    REQUIRE(client->Send(Get("/now", key)));
    return client->ReadUntil("xxx");
  };
  const auto other = rig.Connect(), idlest = rig.Connect(), idle = rig.Connect();
  REQUIRE(take(other, b));
  REQUIRE(take(idlest, a));
  REQUIRE(take(idle, a));
  REQUIRE(take(idle, a));  // its owner stays
  idlest->received.clear();
  const auto third = rig.Connect();
  REQUIRE(third->Send(Get("/never", a)));
  CHECK(idlest->ReadToEnd());
  CHECK(idlest->received.empty());
  CHECK(rig.Stats().idle_closed == 1);
  // A connection that goes on with another key makes room; all that are left are owed an answer.
  REQUIRE(take(idle, b));
  const auto fourth = rig.Connect();
  REQUIRE(fourth->Send(Get("/never", a)));
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 7; }));
  const auto refused = rig.Connect();
  REQUIRE(refused->Send(Get("/now", a)));
  CHECK(refused->ReadToEnd());
  CHECK(refused->received.find("HTTP/1.1 429") == 0);
  // An error that needs no body is told, and ends the connection.
  const auto wrong = rig.Connect();
  REQUIRE(wrong->Send(Get("/none", a)));
  CHECK(wrong->ReadToEnd());
  CHECK(wrong->received.find("HTTP/1.1 404") == 0);
  CHECK(rig.Stats().refused == 1);
  CHECK(rig.answers.n_gone == 0);
  CHECK(take(other, b));
  // There is room again.
  third->Close();
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_gone == 1; }));
  const auto last = rig.Connect();
  CHECK(take(last, a));
}

TEST_CASE("an answer is taken at the least rate, or its client is given up") {
  HttpServerOptions options;
  options.max_unsent = 100 << 20;
  options.write_timeout = absl::Milliseconds(300);
  options.min_write_rate = 4 << 20;
  HttpRig rig(options, GENERATE(Over::kTcp, Over::kTls, Over::kUnix));
  const auto client = rig.Connect();
  REQUIRE(client->Send("GET /stream HTTP/1.0\r\n\r\n"));
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 1; }));
  rig.StartStream();
  constexpr size_t kBytes = 32 << 20;
  rig.Stream(std::string(kBytes, 'x'));
  SECTION("a client that takes a little now and then is too slow") {
    client->SetReceiveBuffer(8192);
    for (int i = 0; i < 100 && rig.answers.n_gone == 0; ++i) {
      absl::SleepFor(absl::Milliseconds(150));
      client->received.clear();
      client->ReadUntil("x", absl::Seconds(1));  // what one call reads
    }
    CHECK(rig.answers.n_gone == 1);
    CHECK(rig.Stats().too_slow == 1);
  }
  SECTION("one that reads gets all of it") {
    rig.On([&] {
      rig.server->EndStream(rig.answers.last);
      return 0;
    });
    CHECK(client->ReadToEnd(absl::Seconds(60)));
    CHECK(client->received.size() > kBytes);
    CHECK(rig.Stats().too_slow == 0);
    CHECK(rig.answers.n_gone == 0);
  }
}

// A request of 1 MB, but for its last bytes.
std::string UnfinishedRequest(size_t body = 1'000'000) {
  return absl::StrCat("POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: ", body, "\r\n\r\n",
                      std::string(body - 10, 'x'));
}

TEST_CASE("bytes of requests that come are within a budget of an address, and of all") {
  HttpServerOptions options;
  const Over over = GENERATE(Over::kTcp, Over::kTls, Over::kUnix);
  // A Unix socket has no address: there the budget of all counts.
  (over == Over::kUnix ? options.max_incoming : options.max_incoming_per_address) = 1'500'000;
  HttpRig rig(options, over);
  rig.answers.body_bytes = 3;
  const auto first = rig.Connect(), second = rig.Connect();
  REQUIRE(first->Send(UnfinishedRequest()));
  REQUIRE(rig.WaitFor([&] { return rig.server->stats().incoming > 900'000; }));
  second->Send(UnfinishedRequest());  // the server may close before its end
  CHECK(second->ReadUntil("HTTP/1.1 503"));
  CHECK(rig.Stats().incoming_refused == 1);
  REQUIRE(first->Send(std::string(10, 'x')));
  CHECK(first->ReadUntil("xxx"));
  CHECK(rig.WaitFor([&] { return rig.server->stats().incoming == 0; }));
  // There is room again.
  const auto third = rig.Connect();
  REQUIRE(third->Send(UnfinishedRequest() + std::string(10, 'x')));
  CHECK(third->ReadUntil("xxx"));
}

TEST_CASE("beyond the budget of all, who holds most is refused, not who came last") {
  HttpServerOptions options;
  options.max_incoming = 2'500'000;
  options.max_incoming_per_address = 100'000'000;
  HttpRig rig(options);
  rig.answers.body_bytes = 3;
  const auto connect = [&](const char* address) {
    return std::make_unique<RawClient>(rig.port, address);
  };
  const auto small = connect("127.0.0.1"), many = connect("127.0.0.2");
  const auto more = connect("127.0.0.2"), large = connect("127.0.0.3");
  REQUIRE(many->Send(UnfinishedRequest(700'000)));
  REQUIRE(rig.WaitFor([&] { return rig.server->stats().incoming > 600'000; }));
  REQUIRE(more->Send(UnfinishedRequest(600'000)));
  REQUIRE(rig.WaitFor([&] { return rig.server->stats().incoming > 1'200'000; }));
  REQUIRE(large->Send(UnfinishedRequest(1'000'000)));
  REQUIRE(rig.WaitFor([&] { return rig.server->stats().incoming > 2'200'000; }));
  REQUIRE(small->Send(UnfinishedRequest(400'000)));
  CHECK(many->ReadUntil("HTTP/1.1 503"));  // of two, the larger, though a third one's is larger
  CHECK(rig.Stats().incoming_refused == 1);
  for (const auto& client : {&small, &more, &large}) {
    REQUIRE((*client)->Send(std::string(10, 'x')));
    CHECK((*client)->ReadUntil("xxx"));
  }
  CHECK(rig.Stats().incoming_refused == 1);
}

TEST_CASE("a large sender by the Unix socket does not shut out small ones by TCP") {
  const TempFolder folder;
  HttpServerOptions options;
  options.uds = folder.file("http.sock");
  options.max_incoming = 2'500'000;
  options.max_incoming_per_address = 100'000'000;
  HttpRig rig(options);
  rig.answers.body_bytes = 3;
  const auto larger = std::make_unique<RawClient>(options.uds);
  const auto large = std::make_unique<RawClient>(options.uds);
  const auto small = rig.Connect();
  REQUIRE(larger->Send(UnfinishedRequest(1'000'000)));
  REQUIRE(rig.WaitFor([&] { return rig.server->stats().incoming > 900'000; }));
  REQUIRE(large->Send(UnfinishedRequest(900'000)));
  REQUIRE(rig.WaitFor([&] { return rig.server->stats().incoming > 1'800'000; }));
  REQUIRE(small->Send(UnfinishedRequest(700'000)));
  CHECK(larger->ReadUntil("HTTP/1.1 503"));
  REQUIRE(small->Send(std::string(10, 'x')));
  CHECK(small->ReadUntil("xxx"));
}

TEST_CASE("headers that are never finished count, and one whole request always has room") {
  HttpServerOptions options;
  options.limits = {.max_header = 10'000, .max_line = 10'000, .max_body = 8'000};
  options.max_incoming_per_address = 4096;  // one request is more
  HttpRig rig(options);
  const std::string header = "GET /now HTTP/1.1\r\nHost: a\r\nA: " + std::string(8'000, 'x');
  std::vector<std::unique_ptr<RawClient>> half;
  for (int i = 0; i < 2; ++i) {
    half.push_back(rig.Connect());
    REQUIRE(half.back()->Send(header));
  }
  REQUIRE(rig.WaitFor([&] { return rig.server->stats().incoming > 16'000; }));
  const auto refused = rig.Connect();
  REQUIRE(refused->Send(header));
  CHECK(refused->ReadUntil("HTTP/1.1 503"));
  half.clear();
  CHECK(rig.WaitFor([&] { return rig.server->stats().incoming == 0; }));
  const auto whole = rig.Connect();
  REQUIRE(whole->Send(header + "\r\n\r\n"));
  CHECK(whole->ReadUntil("HTTP/1.1 200"));
}

TEST_CASE("requests sent ahead beyond the budget go, and the answer before them is the last") {
  HttpServerOptions options;
  options.limits = {.max_header = 10'000, .max_line = 10'000, .max_body = 8'000};
  options.max_incoming_per_address = 4096;  // one request, of 18 kB, is more
  HttpRig rig(options);
  std::string requests = Get("/never");
  while (requests.size() < 40'000) requests += Get("/now");
  const auto client = rig.Connect();
  // The loop stands meanwhile, so that all comes at once.
  REQUIRE(rig.On([&] { return client->Send(requests); }));
  CHECK(rig.WaitFor([&] { return rig.server->stats().incoming_refused == 1; }));
  CHECK(rig.Stats().incoming == 0);
  rig.On([&] {
    HttpReply reply;
    reply.body = "last";
    rig.server->Reply(rig.answers.last, reply);
    return 0;
  });
  CHECK(client->ReadToEnd());
  CHECK(client->received.find("last") != std::string::npos);
  CHECK(rig.answers.n_requests == 1);
}

TEST_CASE("when too much waits for clients, the slowest is given up, and a reader is not") {
  HttpServerOptions options;
  const Over over = GENERATE(Over::kTcp, Over::kTls, Over::kUnix);
  options.max_unsent = 100 << 20;
  (over == Over::kUnix ? options.max_unsent_total : options.max_unsent_per_address) = 24 << 20;
  HttpRig rig(options, over);
  const std::string part(16 << 20, 'y');
  const auto slow = rig.Connect(), reader = rig.Connect();
  slow->SetReceiveBuffer(8192);
  for (const auto& client : {&slow, &reader}) {
    const int before = rig.answers.n_requests;
    REQUIRE((*client)->Send("GET /stream HTTP/1.0\r\n\r\n"));
    REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests > before; }));
    rig.StartStream();
    rig.Stream(part);
    if (client == &slow) absl::SleepFor(absl::Milliseconds(100));
  }
  CHECK(rig.WaitFor([&] { return rig.answers.n_gone == 1; }));
  CHECK(rig.Stats().unread_closed == 1);
  rig.On([&] {
    rig.server->EndStream(rig.answers.last);
    return 0;
  });
  CHECK(reader->ReadToEnd(absl::Seconds(60)));
  CHECK(reader->received.size() > part.size());
  CHECK(rig.WaitFor([&] { return rig.server->stats().unsent == 0; }));
}

TEST_CASE("an answer counts with the memory that it takes, until half of that is free") {
  HttpServerOptions options;
  options.max_unsent = 100 << 20;
  HttpRig rig(options);
  const auto client = rig.Connect();
  REQUIRE(client->Send("GET /stream HTTP/1.0\r\n\r\n"));
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 1; }));
  rig.StartStream();
  const int64_t size = 24 << 20;
  rig.Stream(std::string(size * 3 / 4, 'y') + "mark" + std::string(size / 4, 'y'));
  absl::SleepFor(absl::Milliseconds(200));
  CHECK(rig.Stats().unsent >= size);  // though the kernel has taken some
  REQUIRE(client->ReadUntil("mark"));
  CHECK(rig.WaitFor([&] { return rig.server->stats().unsent <= size / 2; }));
  rig.On([&] {
    rig.server->EndStream(rig.answers.last);
    return 0;
  });
  CHECK(client->ReadToEnd());
  CHECK(rig.WaitFor([&] { return rig.server->stats().unsent == 0; }));
}

TEST_CASE("the least rate is judged by window, and little that waits is no reason") {
  AnswerRate rate(absl::Seconds(10), 100);
  const absl::Time start = absl::UnixEpoch();
  CHECK_FALSE(rate.watching());
  rate.Start(start, 5000, 1 << 20);
  CHECK(rate.deadline() == start + absl::Seconds(10));
  CHECK(rate.IsTooSlow(5999));
  CHECK_FALSE(rate.IsTooSlow(6000));
  rate.Start(start, 5000, 10);
  CHECK(rate.IsTooSlow(5009));
  CHECK_FALSE(rate.IsTooSlow(5010));
  rate.Stop();
  CHECK_FALSE(rate.watching());
  AnswerRate any(absl::Seconds(10), 0);
  any.Start(start, 5000, 1 << 20);
  CHECK(any.IsTooSlow(5000));
  CHECK_FALSE(any.IsTooSlow(5001));
}

TEST_CASE("who comes behind a crowd of another address waits for few of its bytes to be read") {
  HttpRig rig;
  const auto connect = [&](const char* from) {
    return std::make_unique<RawClient>(rig.port, from);
  };
  const bool are_new = GENERATE(false, true);  // the connections come with their bytes
  const std::string part = "GET /now HTTP/1.1\r\nA: " + std::string(7'000, 'a');
  constexpr int kCrowd = 100;
  std::vector<std::unique_ptr<RawClient>> crowd;
  std::unique_ptr<RawClient> other;
  const auto come = [&] {
    while (crowd.size() < kCrowd) crowd.push_back(connect("127.0.0.9"));
    other = connect("127.0.0.1");
  };
  if (!are_new) {
    come();
    REQUIRE(rig.WaitFor([&] { return rig.server->n_connections() == kCrowd + 1; }));
  }
  rig.On([&] {  // the loop stands meanwhile, so that all comes at once
    if (are_new) come();
    for (const auto& client : crowd) client->Send(part);
    return other->Send(Get("/now"));
  });
  CHECK(other->ReadUntil("HTTP/1.1 200"));
  CHECK(rig.answers.incoming_then < 20 * static_cast<int64_t>(part.size()));
  CHECK(rig.WaitFor(
      [&] { return rig.server->stats().incoming == kCrowd * static_cast<int64_t>(part.size()); }));
}

TEST_CASE(
    "a header that does not end is refused in time though its address has to wait for turns") {
  HttpServerOptions options;
  options.loop_share_per_address = 0.05;
  options.header_timeout = absl::Milliseconds(300);
  options.body_timeout = absl::Seconds(800);  // not looked at for 100 s
  HttpRig rig(options);
  rig.answers.body_bytes = 1;
  const char* const address = "127.0.0.9";
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 60; ++i) crowd.push_back(std::make_unique<RawClient>(rig.port, address));
  RawClient slow(rig.port, address);
  slow.Send("GET /now HTTP/1.1\r\nA: ");
  std::string many;
  for (int i = 0; i < 100; ++i) many += Get("/now");
  for (const auto& client : crowd) client->Send(many);  // then the address rests longer than 0.3 s
  std::atomic<bool> is_over = false;
  std::thread trickle([&] {
    while (!is_over) {
      slow.Send("a");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  CHECK(slow.ReadUntil("HTTP/1.1 408"));
  is_over = true;
  trickle.join();
}

TEST_CASE("descriptors are raised to the hard limit, and a reserve is kept") {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 128;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  const int room = RaiseDescriptorLimit(100);
  rlimit after{};
  ::getrlimit(RLIMIT_NOFILE, &after);
  CHECK(after.rlim_cur == before.rlim_max);
  CHECK(room == static_cast<int>(before.rlim_max) - 100);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("the table of descriptors is large before connections come") {
  const auto size = [] {
    std::ifstream status("/proc/self/status");
    int n = 0;
    for (std::string line; n == 0 && std::getline(status, line);)
      if (line.starts_with("FDSize:")) n = std::atoi(line.c_str() + 7);
    return n;
  };
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int wanted = static_cast<int>(std::min<rlim_t>(limit.rlim_max, size() + 3000));
  limit.rlim_cur = static_cast<rlim_t>(wanted);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  REQUIRE(size() < wanted);
  GrowDescriptorTable(wanted);
  CHECK(size() >= wanted);
}

}  // namespace
}  // namespace baton
