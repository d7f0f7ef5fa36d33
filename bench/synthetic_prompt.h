// Prompts of benchmarks: random tokens, the same ones for the same seed everywhere.
#pragma once

#include <cstdint>
#include <vector>

namespace baton {

// n tokens in [0, vocab).
inline std::vector<int32_t> MadeUpPrompt(int n, uint64_t seed, int vocab) {
  std::vector<int32_t> tokens;
  uint32_t state = 777u + static_cast<uint32_t>(seed) * 7919u;
  for (int i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab)));
  }
  return tokens;
}

}  // namespace baton
