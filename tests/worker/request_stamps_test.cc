#include "worker/request_stamps.h"

#include <catch2/catch.hpp>

namespace baton {

TEST_CASE("a request is stamped when it comes, and a prompt's report when it leaves") {
  constexpr absl::Duration kMs = absl::Milliseconds(1);
  const absl::Time now = absl::UnixEpoch() + absl::Hours(7);
  RouterEvent connected = RouterConnected{};
  StampArrival(&connected, now);
  RouterEvent event = RouterMessages{{CancelRequest{}, PrefillRequest{}, DecodeRequest{}}};
  StampArrival(&event, now);
  const auto& messages = std::get<RouterMessages>(event).messages;
  CHECK(std::get<PrefillRequest>(messages[1]).received == now);

  WorkerReport report{.events = {TokenOut{}, PromptComputed{.request_id = 1, .computed = now},
                                 PromptComputed{.request_id = 2, .computed = now - 3 * kMs},
                                 PromptComputed{.request_id = 3}}};
  StampReport(&report, now + 2 * kMs);
  const auto draw_us = [&](size_t i) { return std::get<PromptComputed>(report.events[i]).draw_us; };
  CHECK(draw_us(1) == 2000);
  CHECK(draw_us(2) == 5000);
  CHECK(draw_us(3) == 0);  // unknown
}

}  // namespace baton
