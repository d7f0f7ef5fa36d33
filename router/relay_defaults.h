// Defaults of which prompts are shared among how many workers: what the server's
// settings begin with, and what replays of traces compare with no relays.
#pragma once

namespace baton {

inline constexpr int kShippedRelayMinTokens = 256, kShippedRelayMaxRanks = 8;

}  // namespace baton
