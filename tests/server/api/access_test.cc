// Keys at the front: every route but the probes needs one, before the body is read; limits; what
// belongs to a tenant; names of a server on loopback; and no key in what others may read.
#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

namespace json = boost::json;

KeyEntry Entry(const std::string& name, Scope scope, const std::string& tenant = "t") {
  return {.name = name,
          .digest = KeyDigest::Of("key-of-" + name),
          .tenant = tenant,
          .scopes = SetOf(scope)};
}

// A served API with keys; `hosts` are not checked unless they are given.
struct Guarded {
  explicit Guarded(const std::vector<KeyEntry>& entries, const HostNames* hosts = nullptr,
                   const ApiFrontOptions& options = {}, const HttpServerOptions& http = {})
      : keys(entries),
        served(http, options, "demo", {.version = "test", .keys = &keys, .hosts = hosts}) {}

  ApiKeys keys;
  Served served;
};

struct Told {
  int status = 0;
  std::string head, body;
  json::value parsed() const { return json::parse(body); }
  std::string code() const {
    const json::value code = parsed().at("error").at("code");
    return code.is_null() ? "" : std::string(code.as_string());
  }
};

// Sends a request with these header lines, and reads its answer until the server closes.
Told Ask(const Served& served, const std::string& method, const std::string& path,
         const std::string& lines = "", const std::string& body = "") {
  RawClient client(served.port);
  REQUIRE(client.Send(absl::StrCat(
      method, " ", path, " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n", lines,
      body.empty()
          ? ""
          : absl::StrCat("Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n"),
      "\r\n", body)));
  REQUIRE(client.ReadToEnd());
  const size_t end = client.received.find("\r\n\r\n");
  INFO(client.received);
  REQUIRE(end != std::string::npos);
  return {std::stoi(client.received.substr(9, 3)), client.received.substr(0, end + 2),
          client.received.substr(end + 4)};
}

std::string Bearer(const std::string& name) {
  return absl::StrCat("Authorization: Bearer key-of-", name, "\r\n");
}

const std::vector<KeyEntry>& OneOfEach() {
  static const std::vector<KeyEntry> entries = {Entry("app", Scope::kInference),
                                                Entry("prom", Scope::kMetrics),
                                                Entry("boss", Scope::kAdmin)};
  return entries;
}

const std::map<std::string, Scope> kScopeOf = {
    {"app", Scope::kInference}, {"prom", Scope::kMetrics}, {"boss", Scope::kAdmin}};

std::string PathOf(const Route& route) {
  return absl::StrReplaceAll(std::string(route.path), {{"{id}", "some_id"}, {"*", "demo"}});
}

TEST_CASE("every route but the probes is refused without a key, and with one of another scope") {
  Guarded guarded(OneOfEach());
  std::vector<std::string> open;
  for (const Route& route : RouteTable()) {
    const std::string path = PathOf(route), method(route.method);
    INFO(method << " " << path);
    if (route.scope == Scope::kOpen) {
      open.push_back(path);
      // There is no part of the page /ui with this name, and /ui/ leads to the page.
      const int wanted = path == "/ui/some_id" ? 404 : path == "/ui/" ? 308 : 200;
      CHECK(Ask(guarded.served, method, path).status == wanted);
      continue;
    }
    for (const std::string& lines :
         {std::string(), std::string("Authorization: Bearer wrong\r\n"),
          std::string("x-api-key: wrong\r\n"), std::string("Authorization: Basic a2V5\r\n")}) {
      const Told told = Ask(guarded.served, method, path, lines);
      CHECK(told.status == 401);
      CHECK(absl::StrContains(told.head, "\r\nWWW-Authenticate: Bearer\r\n"));
      CHECK(absl::StrContains(told.head, "\r\nX-Request-Id: "));
    }
    for (const auto& [name, scope] : kScopeOf) {
      const Told told = Ask(guarded.served, method, path, Bearer(name));
      INFO(name << " " << told.body);
      CHECK((told.status == 403) == (scope != route.scope));
      CHECK(told.status != 401);
    }
  }
  CHECK(open ==
        std::vector<std::string>{"/health", "/readyz", "/livez", "/ui", "/ui/", "/ui/some_id"});
  // HEAD is GET, what is not there needs a key too, and a preflight none.
  CHECK(Ask(guarded.served, "HEAD", "/metrics").status == 401);
  CHECK(Ask(guarded.served, "GET", "/nothing").status == 401);
  CHECK(Ask(guarded.served, "GET", "/nothing", Bearer("app")).status == 404);
  CHECK(Ask(guarded.served, "PUT", "/v1/completions").status == 401);
  CHECK(Ask(guarded.served, "PUT", "/v1/completions", Bearer("prom")).status == 405);
  CHECK(Ask(guarded.served, "PUT", "/livez").status == 401);
  CHECK(Ask(guarded.served, "OPTIONS", "/v1/completions", "Origin: http://o\r\n").status == 200);
  CHECK(guarded.served.generator->n_submitted == 0);
}

TEST_CASE("a key has its own bound of connections, whatever name of a header it comes by") {
  HttpServerOptions http;
  http.max_per_key = 1;
  Guarded guarded({Entry("app", Scope::kInference), Entry("other", Scope::kInference)}, nullptr, {},
                  http);
  RawClient busy(guarded.served.port);
  REQUIRE(busy.Send(Post("/v1/completions", kLongStream, Bearer("app"))));
  REQUIRE(guarded.served.WaitFor([&] { return guarded.served.generator->n_submitted == 1; }));
  for (const char* lines : {"Authorization: Bearer key-of-app\r\n", "x-api-key: key-of-app\r\n"}) {
    const Told told = Ask(guarded.served, "GET", "/v1/models", lines);
    CHECK(told.status == 429);
    CHECK(told.code() == "too_many_connections");
    CHECK(absl::StrContains(told.head, "\r\nRetry-After: 1\r\n"));
  }
  CHECK(Ask(guarded.served, "GET", "/v1/models", Bearer("other")).status == 200);
  CHECK(Ask(guarded.served, "GET", "/livez").status == 200);
  busy.Close();
  REQUIRE(guarded.served.WaitFor([&] { return guarded.served.server->n_connections() == 0; }));
  CHECK(Ask(guarded.served, "GET", "/v1/models", Bearer("app")).status == 200);
}

TEST_CASE("the scopes of routes: what applications use, figures, and what operators use") {
  const auto scope = [](const char* method, const char* path) {
    return FindRoute(RouteTable(), method, path).route->scope;
  };
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses",
                           "/v1/messages", "/tokenize", "/v1/embeddings"})
    CHECK(scope("POST", path) == Scope::kInference);
  CHECK(scope("DELETE", "/v1/responses/a") == Scope::kInference);
  CHECK(scope("GET", "/metrics") == Scope::kMetrics);
  CHECK(scope("GET", "/v1/cluster") == Scope::kAdmin);
  CHECK(scope("GET", "/v1/cluster/live") == Scope::kAdmin);
}

TEST_CASE("the errors have the shape of the path's API, and tell nothing of the key") {
  Guarded guarded(OneOfEach());
  const Told none = Ask(guarded.served, "POST", "/v1/chat/completions");
  CHECK(none.code() == "invalid_api_key");
  CHECK(none.parsed().at("error").at("type") == "invalid_request_error");
  CHECK(none.parsed().at("error").at("param").is_null());
  const Told wrong =
      Ask(guarded.served, "POST", "/v1/chat/completions", "Authorization: Bearer my-secret\r\n");
  CHECK(wrong.code() == "invalid_api_key");
  CHECK(wrong.parsed().at("error").at("message") == "Incorrect API key provided.");
  const Told scope = Ask(guarded.served, "GET", "/metrics", Bearer("app"));
  CHECK(scope.code() == "insufficient_scope");
  CHECK(absl::StrContains(scope.body, "metrics"));
  const Told anthropic =
      Ask(guarded.served, "POST", "/v1/messages", "x-api-key: my-secret\r\n", "{}");
  CHECK(anthropic.status == 401);
  CHECK(anthropic.parsed().at("type") == "error");
  CHECK(anthropic.parsed().at("error").at("type") == "authentication_error");
  CHECK(
      Ask(guarded.served, "POST", "/v1/messages", Bearer("prom")).parsed().at("error").at("type") ==
      "permission_error");
  const std::string metrics = Ask(guarded.served, "GET", "/metrics", Bearer("prom")).body;
  for (const Told* told : {&none, &wrong, &scope, &anthropic})
    CHECK_FALSE(absl::StrContains(absl::StrCat(told->head, told->body), "secret"));
  CHECK_FALSE(absl::StrContains(metrics, "secret"));
  CHECK_FALSE(absl::StrContains(metrics, "key-of-"));
  const auto refused = [&](const char* reason) {
    return absl::StrCat("baton_access_refused_total{model=\"demo\",reason=\"", reason,
                        "\",role=\"router\"} ");
  };
  CHECK(absl::StrContains(metrics, refused("no_key") + "1"));
  CHECK(absl::StrContains(metrics, refused("unknown_key") + "2"));
  CHECK(absl::StrContains(metrics, refused("wrong_scope") + "2"));
}

TEST_CASE("the answer comes before the body is read, and in place of 100 Continue") {
  Guarded guarded(OneOfEach());
  for (const bool expects : {false, true}) {
    RawClient client(guarded.served.port);
    REQUIRE(client.Send(absl::StrCat(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n",
        "Content-Length: 1000000\r\n", expects ? "Expect: 100-continue\r\n" : "", "\r\n")));
    REQUIRE(client.ReadToEnd());
    CHECK(client.received.starts_with("HTTP/1.1 401 Unauthorized\r\n"));
    CHECK(absl::StrContains(client.received, "\r\nConnection: close\r\n"));
    CHECK_FALSE(absl::StrContains(client.received, "100 Continue"));
  }
  RawClient client(guarded.served.port);
  REQUIRE(client.Send(
      absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n",
                   Bearer("app"), "Content-Length: 28\r\nExpect: 100-continue\r\n\r\n")));
  REQUIRE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  REQUIRE(client.Send(R"({"prompt":[5],"max_tokens":1})"));
}

TEST_CASE("a bearer of any case and x-api-key serve, on one connection as on many") {
  Guarded guarded(OneOfEach());
  const std::string body = R"({"prompt":[5],"max_tokens":1})";
  for (const char* line : {"Authorization: Bearer key-of-app\r\n", "x-api-key: key-of-app\r\n",
                           "X-API-KEY: key-of-app\r\n", "authorization: bearer key-of-app\r\n"}) {
    INFO(line);
    CHECK(Ask(guarded.served, "POST", "/v1/completions", line, body).status == 200);
  }
  RawClient client(guarded.served.port);
  REQUIRE(client.Send(Get("/v1/models", Bearer("app")) + Get("/v1/models") +
                      Get("/version", Bearer("app") + "Connection: close\r\n")));
  REQUIRE(client.ReadToEnd());
  const size_t first = client.received.find("HTTP/1.1 200"),
               second = client.received.find("HTTP/1.1 401"),
               third = client.received.find("HTTP/1.1 200", second);
  CHECK(first == 0);
  CHECK(second != std::string::npos);
  CHECK(third != std::string::npos);
}

TEST_CASE("a key's limit of requests is a 429 that says when to come again") {
  KeyEntry entry = Entry("app", Scope::kInference);
  entry.requests_per_second = 0.01;
  Guarded guarded({entry, Entry("prom", Scope::kMetrics)});
  CHECK(Ask(guarded.served, "GET", "/v1/models", Bearer("app")).status == 200);
  const Told told = Ask(guarded.served, "POST", "/v1/chat/completions", Bearer("app"), "{}");
  CHECK(told.status == 429);
  CHECK(told.code() == "rate_limit_exceeded");
  CHECK((absl::StrContains(told.head, "\r\nRetry-After: 100\r\n") ||
         absl::StrContains(told.head, "\r\nRetry-After: 99\r\n")));
  // Probes go on, and other keys.
  CHECK(Ask(guarded.served, "GET", "/livez", Bearer("app")).status == 200);
  const Told metrics = Ask(guarded.served, "GET", "/metrics", Bearer("prom"));
  CHECK(absl::StrContains(metrics.body, "reason=\"request_rate\",role=\"router\"} 1"));
}

TEST_CASE("tokens of the prompt and generated ones count against a key's limit") {
  KeyEntry entry = Entry("app", Scope::kInference);
  entry.tokens_per_minute = 12;
  Guarded guarded({entry, Entry("prom", Scope::kMetrics)});
  const auto ask = [&](int n_prompt, int n_tokens) {
    std::string prompt = "5";
    for (int i = 1; i < n_prompt; ++i) prompt += ",5";
    return Ask(guarded.served, "POST", "/v1/completions", Bearer("app"),
               absl::StrCat(R"({"prompt":[)", prompt, R"(],"max_tokens":)", n_tokens, "}"));
  };
  CHECK(ask(4, 6).status == 200);  // 2 are left
  CHECK(ask(1, 1).status == 200);  // none
  const Told told = ask(6, 1);
  CHECK(told.status == 429);
  CHECK(told.code() == "rate_limit_exceeded");
  // 6 tokens at 12 a minute; the test itself takes a moment.
  const size_t at = told.head.find("\r\nRetry-After: ");
  REQUIRE(at != std::string::npos);
  const int seconds = std::stoi(told.head.substr(at + 15));
  CHECK(seconds <= 30);
  CHECK(seconds >= 20);
  CHECK(guarded.served.generator->n_submitted == 2);
  const Told metrics = Ask(guarded.served, "GET", "/metrics", Bearer("prom"));
  INFO(metrics.body);
  CHECK(absl::StrContains(metrics.body, "reason=\"token_rate\",role=\"router\"} 1"));
  CHECK(absl::StrContains(
      metrics.body, "baton_key_requests_total{key=\"app\",model=\"demo\",role=\"router\"} 3"));
  const auto tokens = [&](const char* kind, int n) {
    return absl::StrContains(
        metrics.body,
        absl::StrCat("{key=\"app\",kind=\"", kind, "\",model=\"demo\",role=\"router\"} ", n, "\n"));
  };
  CHECK(tokens("prompt", 5));
  CHECK(tokens("generated", 7));
}

TEST_CASE("stored answers belong to a tenant: to others they are not there") {
  Guarded guarded({Entry("a1", Scope::kInference, "a"), Entry("a2", Scope::kInference, "a"),
                   Entry("b1", Scope::kInference, "b")});
  const auto ask = [&](const char* who, const char* method, const std::string& path,
                       const std::string& body = "", const std::string& lines = "") {
    return Ask(guarded.served, method, path, Bearer(who) + lines, body);
  };
  const std::string response =
      std::string(ask("a1", "POST", "/v1/responses", R"({"input":"hi","max_output_tokens":2})")
                      .parsed()
                      .at("id")
                      .as_string());
  const std::string path = "/v1/responses/" + response;
  const std::string next = absl::StrCat(R"({"input":"more","max_output_tokens":2,)",
                                        R"("previous_response_id":")", response, "\"}");
  CHECK(ask("b1", "GET", path).status == 404);
  CHECK(ask("b1", "GET", path + "/input_items").status == 404);
  CHECK(ask("b1", "POST", path + "/cancel", "{}").status == 404);
  CHECK(ask("b1", "DELETE", path).status == 404);
  const Told foreign = ask("b1", "POST", "/v1/responses", next);
  CHECK(foreign.status == 404);
  CHECK(foreign.code() == "previous_response_not_found");
  CHECK(ask("a2", "GET", path).status == 200);
  CHECK(ask("a2", "POST", "/v1/responses", next).status == 200);

  std::map<std::string, std::string> chats;  // paths
  for (const char* who : {"a1", "b1"}) {
    const Told told = ask(who, "POST", "/v1/chat/completions",
                          R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2,)"
                          R"("store":true,"metadata":{"k":"v"}})",
                          "X-Request-Id: mine\r\n");
    REQUIRE(told.status == 200);
    chats[who] =
        absl::StrCat("/v1/chat/completions/", std::string(told.parsed().at("id").as_string()));
  }
  for (const char* who : {"a2", "b1"})
    CHECK(ask(who, "GET", "/v1/chat/completions").parsed().at("data").as_array().size() == 1);
  CHECK(ask("a2", "GET", chats["a1"]).status == 200);
  CHECK(ask("b1", "GET", chats["a1"]).status == 404);
  CHECK(ask("b1", "GET", chats["a1"] + "/messages").status == 404);
  CHECK(ask("b1", "POST", chats["a1"], R"({"metadata":{}})").status == 404);
  CHECK(ask("b1", "DELETE", chats["a1"]).status == 404);
  CHECK(ask("b1", "DELETE", chats["b1"]).status == 200);
  CHECK(ask("b1", "GET", "/v1/chat/completions").parsed().at("data").as_array().empty());
  CHECK(ask("a1", "GET", chats["a1"] + "/messages").status == 200);
  CHECK(ask("a1", "DELETE", path).status == 200);
}

TEST_CASE("a running response is cancelled by its tenant alone") {
  Guarded guarded({Entry("a", Scope::kInference, "a"), Entry("b", Scope::kInference, "b")});
  Served& served = guarded.served;
  served.generator->hold = true;
  RawClient client(served.port);
  REQUIRE(client.Send(Post("/v1/responses", R"({"input":"hi","stream":true})", Bearer("a"))));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  served.On([&] { served.generator->StepAll(); });
  REQUIRE(client.ReadUntil("response.output_text.delta"));
  const size_t at = client.received.find("\"id\":\"resp_");
  REQUIRE(at != std::string::npos);
  const std::string id = client.received.substr(at + 6, client.received.find('"', at + 6) - at - 6);
  CHECK(Ask(served, "POST", "/v1/responses/" + id + "/cancel", Bearer("b"), "{}").status == 404);
  CHECK(Ask(served, "DELETE", "/v1/responses/" + id, Bearer("b")).status == 404);
  CHECK(served.generator->n_cancelled == 0);
  CHECK(Ask(served, "POST", "/v1/responses/" + id + "/cancel", Bearer("a"), "{}").status == 200);
  CHECK(served.WaitFor([&] { return served.generator->n_cancelled == 1; }));
}

TEST_CASE("KV has a salt by tenant and by the request's; without keys nothing changes") {
  const auto salts_of = [](Served& served, const std::vector<std::string>& keys) {
    for (const std::string& lines : keys)
      for (const char* salt : {"", R"(,"cache_salt":"x")"})
        REQUIRE(Ask(served, "POST", "/v1/completions", lines,
                    absl::StrCat(R"({"prompt":[5],"max_tokens":1)", salt, "}"))
                    .status == 200);
    std::vector<uint64_t> salts;
    for (const GenerateRequest& request : served.generator->submitted)
      salts.push_back(request.cache_salt);
    return salts;
  };
  Guarded guarded({Entry("a1", Scope::kInference, "a"), Entry("a2", Scope::kInference, "a"),
                   Entry("b1", Scope::kInference, "b")});
  const auto salts = salts_of(guarded.served, {Bearer("a1"), Bearer("a2"), Bearer("b1")});
  REQUIRE(salts.size() == 6);
  CHECK(salts[0] == salts[2]);
  CHECK(salts[1] == salts[3]);
  CHECK(std::set<uint64_t>(salts.begin(), salts.end()).size() == 4);
  CHECK(std::count(salts.begin(), salts.end(), 0) == 0);
  Served open;
  const auto plain = salts_of(open, {""});
  CHECK(plain[0] == 0);
  CHECK(plain[1] != 0);
  CHECK(std::count(salts.begin(), salts.end(), plain[1]) == 0);
}

TEST_CASE("a removed key is refused, and what runs with it goes on") {
  Guarded guarded({Entry("a", Scope::kInference), Entry("b", Scope::kInference)});
  Served& served = guarded.served;
  served.generator->hold = true;
  RawClient client(served.port);
  REQUIRE(client.Send(Post("/v1/completions", kStream, Bearer("a"))));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  served.On([&] { guarded.keys.Replace({Entry("b", Scope::kInference)}, absl::InfinitePast()); });
  CHECK(Ask(served, "GET", "/v1/models", Bearer("a")).status == 401);
  CHECK(Ask(served, "GET", "/v1/models", Bearer("b")).status == 200);
  for (int i = 0; i < 3; ++i) served.On([&] { served.generator->StepAll(); });
  CHECK(client.ReadUntil("[DONE]"));
}

TEST_CASE("a page that calls the server by another name is refused, whatever it asks") {
  const HostNames hosts("127.0.0.1", "a");
  const std::string evil = "Host: evil.example:8000\r\n";
  for (const bool has_keys : {false, true}) {
    ApiKeys keys(OneOfEach());
    Served served({}, {}, "demo",
                  {.version = "test", .keys = has_keys ? &keys : nullptr, .hosts = &hosts});
    const auto ask = [&](const std::string& line, const std::string& host) {
      RawClient client(served.port);
      REQUIRE(client.Send(absl::StrCat(line, " HTTP/1.1\r\n", host, "Connection: close\r\n",
                                       Bearer("app"), "\r\n")));
      REQUIRE(client.ReadToEnd());
      return client.received;
    };
    for (const char* line : {"GET /v1/models", "GET /health", "GET /nothing",
                             "OPTIONS /v1/completions", "POST /v1/completions"}) {
      const std::string told = ask(line, evil);
      INFO(told);
      CHECK(told.starts_with("HTTP/1.1 403 Forbidden\r\n"));
      CHECK(absl::StrContains(told, "host_not_allowed"));
      CHECK(absl::StrContains(told, "--server.allowed_hosts"));
    }
    for (const char* host : {"localhost", "127.0.0.1:80", "[::1]:80", "a:1", "LOCALHOST"})
      CHECK(
          ask("GET /v1/models", absl::StrCat("Host: ", host, "\r\n")).starts_with("HTTP/1.1 200"));
  }
}

TEST_CASE("without keys all routes are open, as before") {
  Served served;
  for (const char* path : {"/metrics", "/v1/cluster", "/v1/models", "/load", "/openapi.json"}) {
    CHECK(Ask(served, "GET", path).status == 200);
    CHECK(Ask(served, "GET", path, "Authorization: Bearer none\r\n").status == 200);
  }
}

TEST_CASE("the description names the schemes, and the paths that need none") {
  Served served;
  const json::value document = json::parse(Ask(served, "GET", "/openapi.json").body);
  const json::value& schemes = document.at("components").at("securitySchemes");
  CHECK(schemes.at("bearer").at("scheme") == "bearer");
  CHECK(schemes.at("x-api-key").at("name") == "x-api-key");
  CHECK(document.at("security").as_array().size() == 2);
  const json::value& paths = document.at("paths");
  CHECK(paths.at("/livez").at("get").at("security").as_array().empty());
  CHECK_FALSE(paths.at("/metrics").at("get").as_object().contains("security"));
}

}  // namespace
}  // namespace baton
