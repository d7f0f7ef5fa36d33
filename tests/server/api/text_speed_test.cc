#include "server/api/text_speed.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("the bytes that a time suffices for grow with the time, and ids cost none of it") {
  ServedModel model;
  CHECK(TextBytesWithin(model, absl::Microseconds(500)) > 1 << 30);
  auto tokenizer = Tokenizer::FromFolder(BATON_SOURCE_DIR "/models/demo");
  REQUIRE(tokenizer.ok());
  model.tokenizer = *std::move(tokenizer);
  CHECK(TextBytesWithin(model, absl::ZeroDuration()) == 0);
  // The factor leaves room for a machine that is busy during one of the measurements.
  const int64_t few = TextBytesWithin(model, absl::Microseconds(500));
  CHECK(few > 0);
  CHECK(TextBytesWithin(model, absl::Seconds(10)) > few);
  CHECK(few < 1 << 20);  // 2 GB/s is beyond any tokenizer
}

}  // namespace
}  // namespace baton
