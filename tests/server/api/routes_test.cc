#include "server/api/routes.h"

#include <catch2/catch.hpp>

#include "server/api/endpoints/endpoints.h"

namespace baton {
namespace {

using Methods = std::vector<std::string>;

TEST_CASE("a route is found by its method and its path") {
  const FoundRoute post = FindRoute(RouteTable(), "POST", "/v1/completions");
  REQUIRE(post.route != nullptr);
  CHECK(post.route->path == "/v1/completions");
  CHECK(post.argument.empty());
  const FoundRoute head = FindRoute(RouteTable(), "HEAD", "/livez");
  REQUIRE(head.route != nullptr);
  CHECK(head.route->method == "GET");
}

TEST_CASE("a path that takes other methods says which; an unknown one none") {
  const FoundRoute wrong = FindRoute(RouteTable(), "GET", "/v1/completions");
  CHECK(wrong.route == nullptr);
  CHECK(wrong.methods == Methods{"POST"});
  CHECK(FindRoute(RouteTable(), "DELETE", "/v1/models/demo").methods == Methods{"GET"});
  for (const char* path : {"", "/", "/v1", "/v1/completions/", "/v1/modelsx", "/livez/x"}) {
    INFO(path);
    CHECK(FindRoute(RouteTable(), "GET", path).route == nullptr);
    CHECK(FindRoute(RouteTable(), "GET", path).methods.empty());
  }
}

TEST_CASE("several methods at one path are several rows") {
  constexpr Route kRoutes[] = {{"GET", "/a/*", Scope::kInference, AnswerModel},
                               {"DELETE", "/a/*", Scope::kInference, AnswerLive},
                               {"GET", "/a/b", Scope::kOpen, AnswerHealth}};
  CHECK(FindRoute(kRoutes, "DELETE", "/a/x").route == &kRoutes[1]);
  CHECK(FindRoute(kRoutes, "GET", "/a/b").route == &kRoutes[0]);
  CHECK(FindRoute(kRoutes, "POST", "/a/x").methods == Methods{"GET", "DELETE"});
}

TEST_CASE("what stands for the * of a path is the call's argument") {
  CHECK(FindRoute(RouteTable(), "GET", "/v1/models").argument.empty());
  CHECK(FindRoute(RouteTable(), "GET", "/v1/models").route !=
        FindRoute(RouteTable(), "GET", "/v1/models/").route);
  for (const char* name : {"", "demo", "org/name", "*", "a/"}) {
    const FoundRoute found = FindRoute(RouteTable(), "GET", std::string("/v1/models/") + name);
    INFO(name);
    REQUIRE(found.route != nullptr);
    CHECK(found.argument == name);
  }
}

TEST_CASE("an {id} of a path is one part of it, with or without more behind it") {
  const FoundRoute response = FindRoute(RouteTable(), "GET", "/v1/responses/resp_1");
  REQUIRE(response.route != nullptr);
  CHECK(response.argument == "resp_1");
  CHECK(response.methods == Methods{"GET", "DELETE"});
  const FoundRoute items = FindRoute(RouteTable(), "GET", "/v1/responses/resp_1/input_items");
  REQUIRE(items.route != nullptr);
  CHECK(items.argument == "resp_1");
  CHECK(FindRoute(RouteTable(), "GET", "/v1/responses/a/cancel").methods == Methods{"POST"});
  for (const char* path : {"/v1/responses/", "/v1/responses//cancel", "/v1/responses/a/b",
                           "/v1/responses/a/b/cancel", "/v1/responses/cancel/"}) {
    INFO(path);
    CHECK(FindRoute(RouteTable(), "GET", path).methods.empty());
  }
}

}  // namespace
}  // namespace baton
