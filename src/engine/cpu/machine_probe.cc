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
  constexpr int64_t kUnit = 512;
  const int64_t part = bytes / pool.n_threads() / kUnit * kUnit;
  CHECK(part > 0);
  const char* from = static_cast<const char*>(memory);
  double seconds = 1e30;
  for (int round = 0; round < rounds; ++round) {
    seconds = std::min(seconds, SecondsOf([&] {
                         pool.For(pool.n_threads(), [&](int64_t item, int) {
                           Keep(ReadMemory(from + item * part, part));
                         });
                       }));
  }
  return static_cast<double>(part * pool.n_threads()) / seconds / 1e9;
}

}  // namespace baton
