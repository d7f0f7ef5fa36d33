#include "server/api/guarded_work.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("an exception is a 500 that says nothing of the inside") {
  const auto error = GuardedWork([]() -> std::optional<ApiError> {
    boost::json::value("text").as_object();
    return std::nullopt;
  });
  REQUIRE(error);
  CHECK(error->status == 500);
  CHECK(error->message == "internal error; the server's log has the details");
}

TEST_CASE("work that ends has its own error or none") {
  CHECK_FALSE(GuardedWork([]() -> std::optional<ApiError> { return std::nullopt; }));
  const auto error = GuardedWork(
      []() -> std::optional<ApiError> { return InvalidField("stop", "stop must be text."); });
  REQUIRE(error);
  CHECK(error->param == "stop");
}

}  // namespace
}  // namespace baton
