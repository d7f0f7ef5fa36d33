// Which addresses are served without keys, and by which names a server on loopback is called.
#include "server/access/access_options.h"

#include <catch2/catch.hpp>

#include "server/access/host_names.h"

namespace baton {
namespace {

TEST_CASE("loopback addresses and names are known, and all others are not") {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "localhost"}) {
    INFO(host);
    REQUIRE(IsLoopback(host).ok());
    CHECK(*IsLoopback(host));
  }
  for (const char* host :
       {"0.0.0.0", "::", "", "10.0.0.1", "192.0.2.1", "2001:db8::1", "0", "::ffff:10.0.0.1"}) {
    INFO(host);
    REQUIRE(IsLoopback(host).ok());
    CHECK_FALSE(*IsLoopback(host));
  }
  CHECK(absl::IsInvalidArgument(IsLoopback("no such host.invalid").status()));
}

TEST_CASE("others are served with keys, or where the operator says so; else the start fails") {
  CHECK(ReadAccess({}, "127.0.0.1").ok());
  CHECK(ReadAccess({}, "127.0.0.1")->empty());
  const absl::Status refused = ReadAccess({}, "0.0.0.0").status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(refused.message().find("--api-key-file") != std::string::npos);
  CHECK(refused.message().find("--allow-unauthenticated") != std::string::npos);
  AccessOptions open;
  open.allow_unauthenticated = true;
  CHECK(ReadAccess(open, "0.0.0.0").ok());
  open.api_key_file = "/nowhere/keys";  // what is asked for and not there is an error all the same
  CHECK(absl::IsNotFound(ReadAccess(open, "0.0.0.0").status()));
  CHECK(absl::IsNotFound(ReadAccess(open, "127.0.0.1").status()));
}

TEST_CASE("a server on loopback is called by its own names, with any port") {
  const HostNames hosts("127.0.0.1", "");
  for (const char* host : {"localhost", "localhost:8000", "LocalHost:1", "localhost.:80",
                           "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000", ""}) {
    INFO(host);
    CHECK(hosts.Allows(host));
  }
  for (const char* host : {"evil.example", "evil.example:8000", "localhost.evil.example",
                           "notlocalhost", "127.0.0.1.evil.example", "0.0.0.0", "127.0.0.2", "a",
                           "[::2]", "[::1", "[::1]evil", "localhost:80:80", ".", ":8000"}) {
    INFO(host);
    CHECK_FALSE(hosts.Allows(host));
  }
}

TEST_CASE("the bound host and the listed names are allowed, or any") {
  const HostNames hosts("127.0.0.2", "baton.internal, Other:9000,,");
  for (const char* host :
       {"127.0.0.2:80", "baton.internal", "BATON.internal:443", "other", "other:1"})
    CHECK(hosts.Allows(host));
  CHECK_FALSE(hosts.Allows("third"));
  CHECK(HostNames("127.0.0.1", "*").Allows("evil.example"));
}

}  // namespace
}  // namespace baton
