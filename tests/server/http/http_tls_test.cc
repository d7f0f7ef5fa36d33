// TLS in front of HTTP: versions, certificates of both sides, reloading, and clients that speak
// none of it or stop half-way.
#include <catch2/catch.hpp>

#include "tests/server/http/http_rig.h"

namespace baton {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(10);

TEST_CASE("TLS 1.2 and 1.3 are spoken, with the server's choice of cipher and http/1.1") {
  HttpRig rig({}, Over::kTls);
  rig.answers.body_bytes = 10;
  const int version = GENERATE(TLS1_2_VERSION, TLS1_3_VERSION);
  TlsWishes wishes{.trusted = &rig.authority, .min_version = version, .max_version = version};
  wishes.ciphers = "ECDHE-ECDSA-AES256-SHA:ECDHE-ECDSA-AES256-GCM-SHA384";
  TlsClient client(rig.port, wishes);
  REQUIRE(client.secured());
  CHECK(SSL_version(client.ssl()) == version);
  if (version == TLS1_2_VERSION)
    CHECK(std::string(SSL_get_cipher(client.ssl())) == "ECDHE-ECDSA-AES256-GCM-SHA384");
  CHECK(SSL_get_current_compression(client.ssl()) == nullptr);
  const unsigned char* protocol = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(client.ssl(), &protocol, &size);
  CHECK(std::string(reinterpret_cast<const char*>(protocol), size) == "http/1.1");
  REQUIRE(client.Send(Get("/now")));
  CHECK(client.ReadUntil("xxxxxxxxxx"));
  CHECK(rig.Handshakes(TlsResult::kOk) == 1);
  CHECK(rig.Stats().opened[static_cast<size_t>(TransportKind::kTls)] == 1);
}

TEST_CASE("older versions, and clients that speak only HTTP/2, get an alert and are counted") {
  HttpRig rig({}, Over::kTls);
  TlsClient old(rig.port, {.min_version = TLS1_1_VERSION, .max_version = TLS1_1_VERSION});
  CHECK_FALSE(old.secured());
  CHECK(old.alert().find("alert protocol version") != std::string::npos);
  TlsClient h2(rig.port, {.alpn = "\x02h2"});
  CHECK_FALSE(h2.secured());
  CHECK(h2.alert().find("no application protocol") != std::string::npos);
  CHECK(rig.WaitFor([&] {
    const auto& counts = rig.server->stats().handshakes;
    return counts[static_cast<size_t>(TlsResult::kOldVersion)] == 1 &&
           counts[static_cast<size_t>(TlsResult::kNoHttp11)] == 1;
  }));
  TlsClient both(rig.port, {.alpn = "\x02h2\x08http/1.1"});
  CHECK(both.secured());
  TlsClient silent(rig.port, {.alpn = ""});
  CHECK(silent.secured());
}

TEST_CASE("a client that does not trust the certificate is counted, not harmed") {
  HttpRig rig({}, Over::kTls);
  const TestAuthority foreign("another authority");
  TlsClient client(rig.port, {.trusted = &foreign});
  CHECK_FALSE(client.secured());
  CHECK(rig.WaitFor([&] {
    return rig.server->stats().handshakes[static_cast<size_t>(TlsResult::kRefusedByClient)] == 1;
  }));
}

TEST_CASE("with a client CA only its clients come in, each other is told why, streams go on") {
  TempFolder folder;
  TestAuthority clients("clients"), foreign("foreign");
  folder.Write("clients.pem", clients.pem());
  HttpServerOptions options;
  options.tls.client_ca = folder.file("clients.pem");
  HttpRig rig(options, Over::kTls);
  const TestCertificate good = clients.Issue("good");
  TlsClient stream(rig.port, {.trusted = &rig.authority, .certificate = &good});
  REQUIRE(stream.Send(Get("/stream")));
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 1; }));
  rig.StartStream();
  rig.Stream("first");
  REQUIRE(stream.ReadUntil("first"));

  const TestCertificate expired = clients.Issue("expired", absl::Hours(-48), absl::Hours(-1));
  const TestCertificate later = clients.Issue("later", absl::Hours(1), absl::Hours(48));
  const TestCertificate strange = foreign.Issue("strange");
  struct Case {
    const TestCertificate* certificate;
    TlsResult result;
    const char* alert;
  };
  const int version = GENERATE(TLS1_2_VERSION, TLS1_3_VERSION);
  for (const Case& one : {Case{nullptr, TlsResult::kClientCertificateMissing, ""},
                          Case{&expired, TlsResult::kClientCertificateExpired, "expired"},
                          Case{&later, TlsResult::kClientCertificateExpired, "bad certificate"},
                          Case{&strange, TlsResult::kClientCertificateForeign, "unknown ca"}}) {
    INFO(NameOf(one.result));
    const int64_t before = rig.Handshakes(one.result);
    TlsClient client(
        rig.port, {.certificate = one.certificate, .min_version = version, .max_version = version});
    // In TLS 1.3 the client's side of the handshake is done before the server has looked.
    client.Send(Get("/now"));
    CHECK_FALSE(client.ReadUntil("200 OK", kSoon));
    INFO(client.alert());
    CHECK(client.alert().find("alert") != std::string::npos);
    CHECK(client.alert().find(one.alert) != std::string::npos);
    CHECK(rig.Handshakes(one.result) == before + 1);
  }
  CHECK(rig.answers.n_requests == 1);
  rig.Stream("second");
  CHECK(stream.ReadUntil("second"));
}

TEST_CASE("a session is resumed by a ticket, with a client certificate too") {
  TempFolder folder;
  TestAuthority clients("clients");
  folder.Write("clients.pem", clients.pem());
  HttpServerOptions options;
  options.tls.client_ca = folder.file("clients.pem");
  HttpRig rig(options, Over::kTls);
  rig.answers.body_bytes = 3;
  const TestCertificate good = clients.Issue("good");
  const int version = GENERATE(TLS1_2_VERSION, TLS1_3_VERSION);
  TlsWishes wishes{.certificate = &good, .min_version = version, .max_version = version};
  TlsClient first(rig.port, wishes);
  REQUIRE(first.Send(Get("/now")));
  REQUIRE(first.ReadUntil("xxx"));
  wishes.session = SSL_get1_session(first.ssl());
  TlsClient second(rig.port, wishes);
  REQUIRE(second.Send(Get("/now")));
  CHECK(second.ReadUntil("xxx"));
  CHECK(SSL_session_reused(second.ssl()) == 1);
  SSL_SESSION_free(wishes.session);
}

TEST_CASE("HTTP without TLS gets a 400 that says so, other bytes a close, both are counted") {
  HttpRig rig({}, Over::kTls);
  RawClient plain(rig.port);
  REQUIRE(plain.Send("POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n" +
                     std::string(30000, 'x')));
  CHECK(plain.ReadToEnd(kSoon));
  CHECK(plain.received.starts_with("HTTP/1.1 400 Bad Request"));
  CHECK(plain.received.find("use https://") != std::string::npos);
  CHECK(rig.Handshakes(TlsResult::kPlainHttp) == 1);
  RawClient garbage(rig.port);
  REQUIRE(garbage.Send(std::string("\x01\x02\x03", 3)));
  CHECK(garbage.ReadToEnd(kSoon));
  CHECK(garbage.received.empty());
  CHECK(rig.Handshakes(TlsResult::kNotTls) == 1);
  RawClient broken(rig.port);
  REQUIRE(broken.Send(std::string("\x16\x03\x01\x00\x05hello", 10)));
  CHECK(broken.ReadToEnd(kSoon));
  CHECK(rig.Handshakes(TlsResult::kBroken) + rig.Handshakes(TlsResult::kOldVersion) == 1);
  CHECK(rig.answers.n_requests == 0);
  CHECK(rig.WaitFor([&] {
    const HttpStats stats = rig.server->stats();
    return stats.open == 0 && stats.shaking == 0;
  }));
}

TEST_CASE("half-done handshakes are bounded, end by the deadline, and streams go on meanwhile") {
  HttpServerOptions options;
  options.max_handshakes = 20;
  options.handshake_timeout = absl::Milliseconds(500);
  HttpRig rig(options, Over::kTls);
  const auto stream = rig.Connect();
  REQUIRE(stream->Send(Get("/stream")));
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 1; }));
  rig.StartStream();
  std::vector<std::unique_ptr<RawClient>> half;
  for (int i = 0; i < 200; ++i) {
    half.push_back(std::make_unique<RawClient>(rig.port));
    // Nothing, or the beginning of a ClientHello.
    if (i % 2 == 0) half.back()->Send(std::string("\x16\x03\x01\x02\x00\x01", 6));
  }
  CHECK(rig.WaitFor([&] {
    const HttpStats stats = rig.server->stats();
    return stats.handshakes[static_cast<size_t>(TlsResult::kCrowded)] == 180 && stats.shaking == 20;
  }));
  rig.Stream("token 1");
  CHECK(stream->ReadUntil("token 1"));
  const auto late = rig.Connect();  // takes the place of the oldest
  REQUIRE(late->Send(Get("/none")));
  CHECK(late->ReadUntil("404"));
  CHECK(rig.WaitFor([&] { return rig.server->stats().shaking == 0; }, absl::Seconds(5)));
  CHECK(rig.Handshakes(TlsResult::kTimeout) == 19);
  CHECK(rig.Handshakes(TlsResult::kCrowded) == 181);
  rig.Stream("token 2");
  CHECK(stream->ReadUntil("token 2"));
}

TEST_CASE("the certificate is read again when told or when the files change; connections stay") {
  HttpRig rig({}, Over::kTls);
  rig.answers.body_bytes = 3;
  TlsClient before(rig.port, {.trusted = &rig.authority});
  REQUIRE(before.subject() == "served");
  const bool told = GENERATE(true, false);
  const auto reload = [&] {
    if (!told) return;
    rig.On([&] {
      rig.server->ReloadCertificate();
      return 0;
    });
  };
  // The key comes later than the certificate, as files do.
  const TestCertificate next = rig.authority.Issue("renewed");
  rig.folder.Write("served.pem", next.certificate);
  rig.folder.Write("served.key", next.key);
  reload();
  CHECK(rig.WaitFor([&] { return rig.server->stats().reloads >= 1; }));
  TlsClient after(rig.port, {.trusted = &rig.authority});
  CHECK(after.subject() == "renewed");
  REQUIRE(before.Send(Get("/now")));
  CHECK(before.ReadUntil("xxx"));
  // A pair that does not fit is refused, and the one before stays.
  rig.WaitFor([] { return false; }, absl::Milliseconds(600));  // until nothing is left to notice
  const int64_t reloads = rig.Stats().reloads;
  rig.folder.Write("served.pem", rig.authority.Issue("torn").certificate);
  reload();
  CHECK(rig.WaitFor([&] { return rig.server->stats().reloads_refused >= 1; }));
  rig.WaitFor([] { return false; }, absl::Milliseconds(600));
  CHECK(rig.Stats().reloads_refused == 1);  // one line in the log
  CHECK(rig.Stats().reloads == reloads);
  TlsClient still(rig.port, {.trusted = &rig.authority});
  CHECK(still.subject() == "renewed");
}

TEST_CASE("SIGHUP calls all who read files again, also where it comes before the loop runs") {
  LoopThread loop;
  std::atomic<int> first = 0, second = 0;
  loop.loop.OnReloadSignal([&] { ++first; });
  loop.loop.OnReloadSignal([&] { ++second; });
  ::raise(SIGHUP);
  loop.Start();
  CHECK(loop.WaitFor([&] { return first == 1 && second == 1; }));
  ::raise(SIGHUP);
  CHECK(loop.WaitFor([&] { return first == 2 && second == 2; }));
  loop.Stop();
}

TEST_CASE("links that lead to other files are a change, as Kubernetes makes it") {
  TempFolder folder;
  TestAuthority authority("authority");
  HttpServerOptions options;
  for (const char* day : {"1", "2"}) {
    REQUIRE(std::filesystem::create_directory(folder.file(day)));
    const TestCertificate one = authority.Issue(absl::StrCat("day ", day));
    folder.Write(absl::StrCat(day, "/tls.pem"), one.certificate);
    folder.Write(absl::StrCat(day, "/tls.key"), one.key);
    REQUIRE(::chmod(folder.file(absl::StrCat(day, "/tls.key")).c_str(), 0600) == 0);
  }
  folder.Link("..data", "1");
  folder.Link("tls.pem", "..data/tls.pem");
  folder.Link("tls.key", "..data/tls.key");
  options.tls = {folder.file("tls.pem"), folder.file("tls.key"), ""};
  LoopThread loop;
  Answers answers(&loop.loop);
  auto server = HttpServer::Start(&loop.loop, options, &answers);
  REQUIRE(server.ok());
  const int port = (*server)->port();
  loop.Start();
  CHECK(TlsClient(port).subject() == "day 1");
  folder.Link("..data_tmp", "2");
  std::filesystem::rename(folder.file("..data_tmp"), folder.file("..data"));
  CHECK(loop.WaitFor([&] { return (*server)->stats().reloads == 1; }));
  CHECK(TlsClient(port).subject() == "day 2");
  loop.Stop();
}

TEST_CASE("an answer that ends with its connection is closed with TLS's own end") {
  HttpRig rig({}, Over::kTls);
  const auto client = rig.Connect();
  REQUIRE(client->Send("GET /stream HTTP/1.0\r\n\r\n"));
  REQUIRE(rig.WaitFor([&] { return rig.answers.n_requests == 1; }));
  rig.StartStream();
  rig.Stream(std::string(500000, 'y'));
  rig.On([&] {
    rig.server->EndStream(rig.answers.last);
    return 0;
  });
  CHECK(client->ReadToEnd(kSoon));
  CHECK(client->received.ends_with(std::string(500000, 'y')));
  CHECK(static_cast<TlsClient&>(*client).alert().empty());  // else "unexpected eof"
}

TEST_CASE("a connection that waits for a request is closed with TLS's own end too") {
  HttpServerOptions options;
  options.max_connections = 2;
  options.max_per_address = 3;
  const std::string why = GENERATE("idle too long", "idlest of a full server", "drained");
  if (why == "idle too long") options.idle_timeout = absl::Milliseconds(100);
  INFO(why);
  HttpRig rig(options, Over::kTls);
  rig.answers.body_bytes = 10;
  TlsClient client(rig.port, {.trusted = &rig.authority});
  REQUIRE(client.Send(Get("/now")));
  REQUIRE(client.ReadUntil("xxxxxxxxxx"));
  std::unique_ptr<RawClient> others[2];
  if (why == "idlest of a full server")
    for (auto& other : others) other = rig.Connect();
  if (why == "drained") {
    rig.On([&] {
      rig.server->Drain([] {});
      return 0;
    });
  }
  CHECK(client.ReadToEnd(kSoon));
  CHECK(client.alert().empty());
}

}  // namespace
}  // namespace baton
