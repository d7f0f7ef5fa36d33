// Defaults of RelayRules::min_tokens (tokens) and max_ranks (workers): the server's settings begin
// with them, and replays of traces compare them with no relays.
#pragma once

namespace baton {

inline constexpr int kShippedRelayMinTokens = 256, kShippedRelayMaxRanks = 8;

}  // namespace baton
