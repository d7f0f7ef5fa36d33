#include "engine/cpu/machine/machine_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "common/check.h"
#include "engine/cpu/machine/peak_kernels.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

const PeakKernel& PeakOf(Isa isa, WeightType type) {
  const bool is_bf16 = type == WeightType::kBf16;
  switch (isa) {
    case Isa::kAvx2:
      break;
    case Isa::kAvx512:
      if (is_bf16) return kPeakAvx512;
      return HasVnni() ? kPeakIntegerVnni : kPeakIntegerAvx512;
    case Isa::kAvx512Bf16:
      return is_bf16 ? kPeakAvx512Bf16 : kPeakIntegerVnni;
    case Isa::kAmx:
      return is_bf16 ? kPeakAmx : kPeakIntegerAmx;
  }
  if (is_bf16) return kPeakAvx2;
  return type == WeightType::kInt4 ? kPeakInt4Avx2 : kPeakIntegerAvx2;
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

double ProbePeakGops(Isa isa, WeightType type, ComputePool& pool, int tries) {
  const PeakKernel& peak = PeakOf(isa, type);
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
      pool.For(pool.n_threads(), [&](int64_t, int) { Keep(peak.run(operands, iterations)); });
    });
  };
  int64_t iterations = 1000;
  double seconds = run(iterations);
  while (seconds < 1e-3) seconds = run(iterations *= 2);
  for (int i = 0; i < tries; ++i) seconds = std::min(seconds, run(iterations));
  const double flops = static_cast<double>(peak.flops_per_iteration * iterations);
  return flops * pool.n_threads() / seconds / 1e9;
}

double ProbeReadGbps(ComputePool& pool, const void* memory, int64_t bytes, int tries) {
  // Reads in pieces of a few milliseconds, so that one interruption does not spoil the whole
  // result.
  constexpr int64_t kPiece = int64_t{64} << 20;
  const int64_t pieces = std::max<int64_t>(1, bytes / kPiece);
  const int64_t part = bytes / pieces / pool.n_threads() / kReadUnit * kReadUnit;
  BATON_CHECK(part > 0);
  const char* from = static_cast<const char*>(memory);
  double seconds = 1e30;
  for (int64_t i = 0; i < tries; ++i) {
    const int64_t round = i / pieces, piece = i % pieces;
    const auto read = kRead[(round + piece) % kReadWays];
    const char* begin = from + bytes / pieces / 64 * 64 * piece;
    seconds = std::min(seconds, SecondsOf([&] {
                         pool.For(pool.n_threads(), [&](int64_t item, int) {
                           Keep(read(begin + item * part, part));
                         });
                       }));
  }
  return static_cast<double>(part * pool.n_threads()) / seconds / 1e9;
}

MemoryProbe::MemoryProbe(int64_t bytes) : bytes_(bytes) {
  uint64_t* words = static_cast<uint64_t*>(memory_.Reserve(static_cast<size_t>(bytes)));
  uint64_t random = 0x9e3779b97f4a7c15u;  // xorshift64
  for (int64_t i = 0; i < bytes / 8; ++i) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    words[i] = random;
  }
  data_ = words;
}

double MemoryProbe::ReadGbps(ComputePool& pool, int tries) const {
  return ProbeReadGbps(pool, data_, bytes_, tries);
}

}  // namespace baton
