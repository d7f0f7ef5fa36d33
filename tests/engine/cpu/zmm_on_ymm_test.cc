// The emulation of AVX-512 (zmm_on_ymm.h) against scalar forms of every instruction, and the
// instructions against both if the machine has them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/machine/isa.h"
#include "engine/threads/mxcsr.h"
#include "tests/engine/cpu/zmm_operations.h"

namespace baton {
namespace {

template <typename T>
T At(const ZmmLine& line, int i) {
  T value;
  std::memcpy(&value, line.bytes + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

// Returns lane i of a form's result, from three operands.
template <typename T>
using Lane = std::function<T(const ZmmLine* x, int i)>;

// The scalar form of an operation: n lanes, then zeros.
struct Form {
  std::string name;
  std::function<ZmmLine(const ZmmLine* x)> run;
};
template <typename T>
Form Of(std::string name, Lane<T> lane, int n = 64 / static_cast<int>(sizeof(T))) {
  return {std::move(name), [lane, n](const ZmmLine* x) {
            ZmmLine out;
            for (int i = 0; i < n; ++i) {
              const T value = lane(x, i);
              std::memcpy(out.bytes + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
            }
            return out;
          }};
}

float A(const ZmmLine* x, int i) { return At<float>(x[0], i); }
float B(const ZmmLine* x, int i) { return At<float>(x[1], i); }
uint32_t WordA(const ZmmLine* x, int i) { return At<uint32_t>(x[0], i); }
uint32_t WordB(const ZmmLine* x, int i) { return At<uint32_t>(x[1], i); }

float HighOf(uint32_t pair) { return __builtin_bit_cast(float, pair & 0xffff0000u); }
float LowOf(uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }

int32_t Nearest(float x) {
  const double whole = std::nearbyint(static_cast<double>(x));
  if (!(whole >= -0x1p31 && whole < 0x1p31)) return std::numeric_limits<int32_t>::min();
  return static_cast<int32_t>(whole);
}
int16_t Saturated(int x) { return static_cast<int16_t>(std::clamp(x, -32768, 32767)); }

// Returns the lane of the line for lane i of a quarter of `lanes` lanes of T (128 bits).
int InQuarter(int i, int lanes, int at) { return i / lanes * lanes + at; }

// Returns quarter q of a shuffle by 128 bits: two of the first operand, two of the second.
uint32_t QuarterWord(const ZmmLine* x, int i, int order) {
  const int quarter = i / 4, from = order >> 2 * quarter & 3;
  return At<uint32_t>(x[quarter / 2], 4 * from + i % 4);
}

const std::vector<Form>& Forms() {
  using U8 = uint8_t;
  using U16 = uint16_t;
  using U32 = uint32_t;
  using U64 = uint64_t;
  static const std::vector<Form> forms = {
      Of<U32>("load_ps, store_ps", WordA),
      Of<U32>("load_si512, store_si512", WordA),
      Of<U8>("loadu_ps", [](const ZmmLine* x, int i) { return (&x->bytes[12])[i]; }),
      Of<U8>("loadu_si512", [](const ZmmLine* x, int i) { return (&x->bytes[1])[i]; }),
      Of<U32>("stream_si512", WordA),
      Of<U32>("maskz_loadu_ps",
              [](const ZmmLine* x, int i) {
                return (WordB(x, 0) >> i & 1) != 0 ? WordA(x, i) : 0u;
              }),
      Of<U32>("setzero_ps", [](const ZmmLine*, int) { return 0u; }),
      Of<U32>("setzero_si512", [](const ZmmLine*, int) { return 0u; }),
      Of<U32>("set1_ps", [](const ZmmLine* x, int) { return WordA(x, 0); }),
      Of<U32>("set1_epi32", [](const ZmmLine* x, int) { return WordA(x, 0); }),
      Of<U64>("set1_epi64", [](const ZmmLine* x, int) { return At<U64>(*x, 0); }),
      Of<U16>("set1_epi16", [](const ZmmLine* x, int) { return At<U16>(*x, 0); }),
      Of<U8>("set1_epi8", [](const ZmmLine* x, int) { return x->bytes[0]; }),
      Of<U32>("broadcast_i32x4", [](const ZmmLine* x, int i) { return WordA(x, i % 4); }),
      Of<U32>("castps_si512, castsi512_ps", WordA),
      Of<U32>("castps512_ps256", WordA, 8),
      Of<U32>("castsi512_si256", WordA, 8),
      Of<U32>("extractf32x8_ps 0", WordA, 8),
      Of<U32>("extractf32x8_ps 1", [](const ZmmLine* x, int i) { return WordA(x, i + 8); }, 8),
      Of<U32>("extracti64x4_epi64 1", [](const ZmmLine* x, int i) { return WordA(x, i + 8); }, 8),
      Of<U32>("castsi256_si512, inserti64x4 1",
              [](const ZmmLine* x, int i) { return WordA(x + i / 8, i % 8); }),

      Of<float>("add_ps", [](const ZmmLine* x, int i) { return A(x, i) + B(x, i); }),
      Of<float>("sub_ps", [](const ZmmLine* x, int i) { return A(x, i) - B(x, i); }),
      Of<float>("mul_ps", [](const ZmmLine* x, int i) { return A(x, i) * B(x, i); }),
      Of<float>("div_ps", [](const ZmmLine* x, int i) { return A(x, i) / B(x, i); }),
      Of<float>("fmadd_ps",
                [](const ZmmLine* x, int i) {
                  return __builtin_fmaf(A(x, i), B(x, i), At<float>(x[2], i));
                }),
      Of<float>("max_ps",
                [](const ZmmLine* x, int i) {
                  return _mm_cvtss_f32(_mm_max_ss(_mm_set_ss(A(x, i)), _mm_set_ss(B(x, i))));
                }),
      Of<float>("min_ps",
                [](const ZmmLine* x, int i) {
                  return _mm_cvtss_f32(_mm_min_ss(_mm_set_ss(A(x, i)), _mm_set_ss(B(x, i))));
                }),

      Of<U32>("add_epi32", [](const ZmmLine* x, int i) { return WordA(x, i) + WordB(x, i); }),
      Of<U8>("sub_epi8",
             [](const ZmmLine* x, int i) {
               return static_cast<U8>(x[0].bytes[i] - x[1].bytes[i]);
             }),
      Of<U32>("and_si512", [](const ZmmLine* x, int i) { return WordA(x, i) & WordB(x, i); }),
      Of<U32>("or_si512", [](const ZmmLine* x, int i) { return WordA(x, i) | WordB(x, i); }),
      Of<U32>("slli_epi32 16", [](const ZmmLine* x, int i) { return WordA(x, i) << 16; }),
      Of<U32>("slli_epi32 23", [](const ZmmLine* x, int i) { return WordA(x, i) << 23; }),
      Of<U32>("srli_epi32 4", [](const ZmmLine* x, int i) { return WordA(x, i) >> 4; }),
      Of<U32>("srli_epi32 16", [](const ZmmLine* x, int i) { return WordA(x, i) >> 16; }),
      Of<U16>("srli_epi16 8",
              [](const ZmmLine* x, int i) { return static_cast<U16>(At<U16>(*x, i) >> 8); }),
      Of<U32>("madd_epi16",
              [](const ZmmLine* x, int i) {
                U32 sum = 0;
                for (int j = 2 * i; j < 2 * i + 2; ++j) {
                  sum += static_cast<U32>(At<int16_t>(x[0], j) * At<int16_t>(x[1], j));
                }
                return sum;
              }),
      Of<int16_t>("maddubs_epi16",
                  [](const ZmmLine* x, int i) {
                    int sum = 0;
                    for (int j = 2 * i; j < 2 * i + 2; ++j) {
                      sum += x[0].bytes[j] * At<int8_t>(x[1], j);
                    }
                    return Saturated(sum);
                  }),

      Of<float>("cvtepi32_ps",
                [](const ZmmLine* x, int i) { return static_cast<float>(At<int32_t>(*x, i)); }),
      Of<int32_t>("cvtps_epi32", [](const ZmmLine* x, int i) { return Nearest(A(x, i)); }),
      Of<int32_t>("cvtepi8_epi32",
                  [](const ZmmLine* x, int i) { return int32_t{At<int8_t>(*x, i)}; }),
      Of<U32>("cvtepu16_epi32", [](const ZmmLine* x, int i) { return U32{At<U16>(*x, i)}; }),
      Of<U16>("cvtepi32_epi16", [](const ZmmLine* x, int i) { return At<U16>(*x, 2 * i); }, 16),
      Of<U8>("cvtepi32_epi8", [](const ZmmLine* x, int i) { return x->bytes[4 * i]; }, 16),

      Of<U16>(
          "cmp_ps_mask unordered",
          [](const ZmmLine* x, int) {
            U32 mask = 0;
            for (int i = 0; i < 16; ++i) mask |= U32{std::isunordered(A(x, i), B(x, i))} << i;
            return static_cast<U16>(mask);
          },
          1),
      Of<U16>(
          "cmp_ps_mask less",
          [](const ZmmLine* x, int) {
            U32 mask = 0;
            for (int i = 0; i < 16; ++i) mask |= U32{A(x, i) < B(x, i)} << i;
            return static_cast<U16>(mask);
          },
          1),
      Of<U32>("mask_mov_ps",
              [](const ZmmLine* x, int i) { return WordA(x + (WordA(x + 2, 0) >> i & 1), i); }),
      Of<U32>("mask_mov_epi32",
              [](const ZmmLine* x, int i) { return WordA(x + (WordA(x + 2, 0) >> i & 1), i); }),
      Of<U16>("mask_mov_epi16",
              [](const ZmmLine* x, int i) { return At<U16>(x[WordA(x + 2, 0) >> i & 1], i); }),

      Of<U32>("shuffle_ps 0x88",
              [](const ZmmLine* x, int i) {
                return WordA(x + i % 4 / 2, InQuarter(i, 4, 0x88 >> 2 * (i % 4) & 3));
              }),
      Of<U32>("shuffle_ps 0x1e",
              [](const ZmmLine* x, int i) {
                return WordA(x + i % 4 / 2, InQuarter(i, 4, 0x1e >> 2 * (i % 4) & 3));
              }),
      Of<U8>("shuffle_epi8",
             [](const ZmmLine* x, int i) {
               const U8 at = x[1].bytes[i];
               return at >= 128 ? U8{0} : x[0].bytes[InQuarter(i, 16, at % 16)];
             }),
      Of<U8>("mask_shuffle_epi8",
             [](const ZmmLine* x, int i) {
               if ((At<U64>(x[2], 0) >> i & 1) == 0) return x[0].bytes[i];
               const U8 at = x[2].bytes[i];
               return at >= 128 ? U8{0} : x[1].bytes[InQuarter(i, 16, at % 16)];
             }),
      Of<U16>(
          "unpacklo_epi16",
          [](const ZmmLine* x, int i) { return At<U16>(x[i % 2], InQuarter(i, 8, i % 8 / 2)); }),
      Of<U16>("unpackhi_epi16",
              [](const ZmmLine* x, int i) {
                return At<U16>(x[i % 2], InQuarter(i, 8, 4 + i % 8 / 2));
              }),
      Of<U64>("unpacklo_epi64",
              [](const ZmmLine* x, int i) { return At<U64>(x[i % 2], InQuarter(i, 2, 0)); }),
      Of<U64>("unpackhi_epi64",
              [](const ZmmLine* x, int i) { return At<U64>(x[i % 2], InQuarter(i, 2, 1)); }),
      Of<U64>("unpacklo_pd",
              [](const ZmmLine* x, int i) { return At<U64>(x[i % 2], InQuarter(i, 2, 0)); }),
      Of<U64>("unpackhi_pd",
              [](const ZmmLine* x, int i) { return At<U64>(x[i % 2], InQuarter(i, 2, 1)); }),
      Of<U32>("shuffle_i64x2 0x44",
              [](const ZmmLine* x, int i) { return QuarterWord(x, i, 0x44); }),
      Of<U32>("shuffle_i64x2 0x1e",
              [](const ZmmLine* x, int i) { return QuarterWord(x, i, 0x1e); }),
      Of<U32>("shuffle_f32x4 0xdd",
              [](const ZmmLine* x, int i) { return QuarterWord(x, i, 0xdd); }),
      Of<U32>("shuffle_f32x4 0x1e",
              [](const ZmmLine* x, int i) { return QuarterWord(x, i, 0x1e); }),
      Of<U16>("permutexvar_epi16",
              [](const ZmmLine* x, int i) { return At<U16>(x[1], At<U16>(x[0], i) % 32); }),

      Of<U32>("dpbusd_epi32",
              [](const ZmmLine* x, int i) {
                U32 sum = WordA(x, i);
                for (int j = 4 * i; j < 4 * i + 4; ++j) {
                  sum += static_cast<U32>(x[1].bytes[j] * At<int8_t>(x[2], j));
                }
                return sum;
              }),
      Of<float>("dpbf16_ps",
                [](const ZmmLine* x, int i) {
                  const U32 a = WordA(x + 1, i), b = WordA(x + 2, i);
                  const float first = __builtin_fmaf(HighOf(a), HighOf(b), A(x, i));
                  return __builtin_fmaf(LowOf(a), LowOf(b), first);
                }),
  };
  return forms;
}

// Returns whether the operation computes NaN, which may then have any payload.
bool MakesNan(const std::string& name) {
  for (const char* made : {"add_ps", "sub_ps", "mul_ps", "div_ps", "fmadd_ps", "dpbf16_ps"}) {
    if (name == made) return true;
  }
  return false;
}

bool Same(const std::string& name, const ZmmLine& a, const ZmmLine& b) {
  if (!MakesNan(name)) return std::memcmp(&a, &b, sizeof a) == 0;
  for (int i = 0; i < 16; ++i) {
    if (std::isnan(At<float>(a, i)) && std::isnan(At<float>(b, i))) continue;
    if (At<uint32_t>(a, i) != At<uint32_t>(b, i)) return false;
  }
  return true;
}

// Returns ends of ranges, zeros, denormals, infinities and NaN, ordinary floats, and any bits.
uint32_t NextWord(std::mt19937& random) {
  static constexpr uint32_t kEdges[] = {
      0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00800000, 0x80800000, 0x3f800000,
      0xbf800000, 0x3f000000, 0x40200000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
      0x7fc00000, 0xffc12345, 0x7f800001, 0x4effffff, 0x4f000000, 0xcf000000, 0xffffffff,
      0x7fffffff, 0x80808080, 0x7f7f7f7f, 0x80007fff, 0xff00ff00, 0x00ff00ff, 0x7fff8000};
  const uint32_t bits = static_cast<uint32_t>(random());
  switch (random() % 3) {
    case 0:
      return kEdges[bits % std::size(kEdges)];
    case 1:
      return (bits & 0x807fffffu) | (110 + bits % 40) << 23;
    default:
      return bits;
  }
}

constexpr int kRounds = 2000;

// Runs each wanted operation many times. Returns the number of operations.
int Check(const ZmmOperations& operations,
          const std::function<bool(const ZmmOperation& operation)>& is_wanted) {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const NumericsMxcsrScope mxcsr;
  REQUIRE(static_cast<size_t>(operations.n) == Forms().size());
  int checked = 0;
  for (int i = 0; i < operations.n; ++i) {
    const ZmmOperation& operation = operations.first[i];
    const Form& form = Forms()[static_cast<size_t>(i)];
    REQUIRE(form.name == operation.name);
    if (!is_wanted(operation)) continue;
    ++checked;
    for (int round = 0; round < kRounds; ++round) {
      ZmmLine x[3];
      for (ZmmLine& line : x) {
        for (int at = 0; at < 64; at += 4) {
          const uint32_t word = NextWord(random);
          std::memcpy(line.bytes + at, &word, sizeof word);
        }
      }
      ZmmLine got;
      operation.run(x, &got);
      if (!Same(form.name, got, form.run(x))) FAIL(form.name << " differs");
    }
  }
  return checked;
}

bool MachineHas(const ZmmOperation& operation) {
  if (operation.needs == ZmmOperation::kVnni) return HasVnni();
  const Isa isa = operation.needs == ZmmOperation::kBf16 ? Isa::kAvx512Bf16 : Isa::kAvx512;
  return CheckIsaSupported(isa).ok();
}

TEST_CASE("every emulated instruction equals its scalar form") {
  CHECK(Check(kEmulatedZmm, [](const ZmmOperation&) { return true; }) == kEmulatedZmm.n);
}

TEST_CASE("the machine's instructions equal the scalar forms, as far as it has them") {
  if (Check(kMachineZmm, MachineHas) == 0) WARN("this machine has no AVX-512");
}

}  // namespace
}  // namespace baton
