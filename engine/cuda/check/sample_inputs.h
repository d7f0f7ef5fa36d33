// Inputs of sample.h for checks on a GPU and tests on an emulated block. Memory of the host. Any
// thread.
#pragma once

#include <cstdint>
#include <iterator>
#include <random>

#include "engine/cuda/sample_row.h"

namespace baton {
namespace {

constexpr int32_t kRecord = sizeof(SampleRowResult) / 8;  // in units of a place of results

// Names what a row's logits are like.
enum class LogitKind : int {
  kNormal,       // as those of a model
  kFlat,         // all tokens are likely: many small shares
  kTies,         // few values, each many times
  kOdd,          // some NaN and infinities of both signs
  kFewAreThere,  // all but some are minus infinity
  kNothing,      // NaN and minus infinity alone
  kSmall,        // zeros of both signs and denormals
  kSteep,        // one token has nearly all weight, the last ones none
};
constexpr int kLogitKinds = 8;

inline void Fill(LogitKind kind, std::mt19937& random, float* logits, int n) {
  std::normal_distribution<float> normal(0, kind == LogitKind::kFlat ? 0.01f : 3.0f);
  for (int i = 0; i < n; ++i) {
    const auto dice = static_cast<uint32_t>(random());
    float x = normal(random);
    switch (kind) {
      case LogitKind::kNormal:
      case LogitKind::kFlat:
        break;
      case LogitKind::kTies:
        x = static_cast<float>(dice % 5);
        break;
      case LogitKind::kOdd:
        if (dice % 97 == 0) x = __builtin_bit_cast(float, 0x7fc00000u | dice >> 12);
        if (dice % 89 == 0) x = -__builtin_inff();
        if (dice % 9973 == 0) x = __builtin_inff();
        break;
      case LogitKind::kFewAreThere:
        if (dice % 50 != 0) x = -__builtin_inff();
        break;
      case LogitKind::kNothing:
        x = dice % 2 == 0 ? -__builtin_inff() : __builtin_bit_cast(float, 0xffc00001u);
        break;
      case LogitKind::kSmall:
        x = __builtin_bit_cast(float,
                               (dice & 0x80000000u) | (dice % 3 == 0 ? dice & 0x7fffffu : 0));
        break;
      case LogitKind::kSteep:
        x = i == n / 3 ? 100.0f : i > n / 2 ? -1e30f : x;
        break;
    }
    logits[i] = x;
  }
}

// Fills row `row` of (n_rows, vocab) logits, and returns its arguments.
inline SampleRowArguments FillRow(int row, uint32_t seed, float* logits, int vocab) {
  constexpr float kTemperatures[] = {0, 0.3f, 1, 2, 1e-6f, 0.7f};
  std::mt19937 random(seed + static_cast<uint32_t>(row));
  Fill(static_cast<LogitKind>(row % kLogitKinds), random, logits, vocab);
  SampleRowArguments arguments;
  arguments.temperature = kTemperatures[row / kLogitKinds % std::size(kTemperatures)];
  arguments.seed = uint64_t{random()} << 32 | random();
  arguments.position = static_cast<int64_t>(random()) << (row % 3 * 4);
  arguments.drawable = vocab;
  if (row % 5 == 1) arguments.drawable = vocab - static_cast<int32_t>(random() % (vocab / 2));
  // The greatest logit is that of an id that is not drawn.
  if (row % 10 == 1) logits[arguments.drawable - 1 + (arguments.drawable < vocab)] = 1e9f;
  if (row % 11 == 10) arguments.drawable = 0;
  arguments.result = row * kRecord;
  return arguments;
}

}  // namespace
}  // namespace baton
