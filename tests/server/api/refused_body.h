// Checks that a body is refused with a 400 that names the field.
#pragma once

#include <catch2/catch.hpp>

#include "server/api/api_request.h"

namespace baton {

struct BadCase {
  const char* body;
  const char* param;  // "" = null
  const char* code;
};

inline void CheckRefused(Endpoint endpoint, const BadCase& bad) {
  ApiRequest request;
  const auto error = ParseApiRequest(endpoint, bad.body, &request);
  INFO(bad.body);
  REQUIRE(error.has_value());
  INFO(error->message);
  CHECK(error->status == 400);
  CHECK(error->type == "invalid_request_error");
  CHECK(error->param == bad.param);
  CHECK(error->code == bad.code);
  CHECK_FALSE(error->message.empty());
}

}  // namespace baton
