#include "engine/cpu/machine_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "common/check.h"
#include "engine/cpu/aligned_buffer.h"
#include "engine/cpu/roof_kernels.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

const RoofKernel& RoofOf(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return kRoofAvx2;
    case Isa::kAvx512:
      return kRoofAvx512;
    case Isa::kAvx512Bf16:
      return kRoofAvx512Bf16;
    case Isa::kAmx:
      return kRoofAmx;
  }
  return kRoofAvx2;
}

template <typename Body>
double SecondsOf(const Body& body) {
  const Clock::time_point begin = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Keeps a result alive, so that no loop is optimized away.
template <typename T>
void Keep(const T& value) {
  __asm__ volatile("" : : "r,m"(value) : "memory");
}

}  // namespace

double ProbeDotGflops(Isa isa, ComputePool& pool) {
  const RoofKernel& roof = RoofOf(isa);
  constexpr int64_t kFloats = 1024;
  AlignedBuffer buffer;
  uint16_t* halves = static_cast<uint16_t*>(buffer.Reserve(kFloats * 4));
  uint32_t random = 12345;
  for (int64_t i = 0; i < kFloats * 2; ++i) {  // bf16 of +-[1/4, 4): as floats and as pairs
    random = random * 1664525u + 1013904223u;
    const uint32_t bits = random >> 8;
    halves[i] =
        static_cast<uint16_t>((bits & 0x8000u) | (125 + (bits >> 16 & 3u)) << 7 | (bits & 0x7fu));
  }
  const float* operands = static_cast<const float*>(static_cast<const void*>(halves));
  const auto run = [&](int64_t iterations) {
    return SecondsOf([&] {
      pool.For(pool.n_threads(), [&](int64_t, int) { Keep(roof.run(operands, iterations)); });
    });
  };
  int64_t iterations = 1000;
  double seconds = run(iterations);
  while (seconds < 2e-3) seconds = run(iterations *= 2);
  for (int i = 0; i < 8; ++i) seconds = std::min(seconds, run(iterations));
  const double flops = static_cast<double>(roof.flops_per_iteration * iterations);
  return flops * pool.n_threads() / seconds / 1e9;
}

double ProbeReadGbps(ComputePool& pool, int64_t bytes, int rounds) {
  AlignedBuffer buffer;
  void* memory = buffer.Reserve(static_cast<size_t>(bytes));
  std::memset(memory, 0x5a, static_cast<size_t>(bytes));
  return ProbeReadGbps(pool, memory, bytes, rounds);
}

double ProbeReadGbps(ComputePool& pool, const void* memory, int64_t bytes, int rounds) {
  // In pieces of a few milliseconds, so that one interruption does not spoil the whole. Which way
  // of reading is the fastest differs among machines.
  constexpr int64_t kPiece = int64_t{64} << 20, kUnit = 2048;
  uint64_t (*const kWays[])(const void*, int64_t) = {ReadLinear, ReadFourStreams,
                                                     ReadFourStreamsPrefetched};
  const int64_t pieces = std::max<int64_t>(1, bytes / kPiece);
  const int64_t part = bytes / pieces / pool.n_threads() / kUnit * kUnit;
  CHECK(part > 0);
  const char* from = static_cast<const char*>(memory);
  double seconds = 1e30;
  for (int round = 0; round < rounds; ++round) {
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const auto read = kWays[(round + piece) % 3];
      const char* begin = from + bytes / pieces / 64 * 64 * piece;
      seconds = std::min(seconds, SecondsOf([&] {
                           pool.For(pool.n_threads(), [&](int64_t item, int) {
                             Keep(read(begin + item * part, part));
                           });
                         }));
    }
  }
  return static_cast<double>(part * pool.n_threads()) / seconds / 1e9;
}

}  // namespace baton
