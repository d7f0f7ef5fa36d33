// Norm, rope and KV write of every path against scalar forms on sixteen virtual lanes, bit by bit,
// and exp2 against double.
#include "engine/cpu/rows/elementwise.h"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "engine/model/model_desc.h"
#include "engine/numerics/exp2.h"
#include "engine/numerics/fold.h"
#include "engine/numerics/gelu.h"
#include "engine/numerics/tanh.h"
#include "engine/threads/mxcsr.h"
#include "tests/engine/cpu/kernel_paths.h"

namespace baton {
namespace {

constexpr bf16 kPoison = 0x7fff;

// Returns every path of this machine, and the rows on emulated zmm registers.
std::vector<std::pair<std::string, const ElementwiseKernels*>> Paths() {
  std::vector<std::pair<std::string, const ElementwiseKernels*>> paths;
  for (const Isa isa : SupportedIsas()) {
    paths.emplace_back(IsaName(isa), &GetElementwiseKernels(isa));
  }
  paths.emplace_back("emulated avx512", &EmulatedElementwise());
  return paths;
}

std::vector<bf16> RandomRow(std::mt19937& rng, int64_t n) {
  std::vector<bf16> row(static_cast<size_t>(n));
  for (bf16& x : row) {
    const uint32_t r = static_cast<uint32_t>(rng());
    // Mostly ordinary values, some tiny (also denormal), some -0.
    x = r % 16 == 0 ? static_cast<bf16>(r >> 16 & 0x80ff)
                    : FloatToBf16(std::normal_distribution<float>(0, 2)(rng));
  }
  return row;
}

std::vector<float> RandomFloats(std::mt19937& rng, int64_t n) {
  std::vector<float> row(static_cast<size_t>(n));
  for (float& x : row) x = std::normal_distribution<float>(0, 1)(rng);
  return row;
}

std::vector<bf16> ReferenceRmsNorm(const std::vector<bf16>& x, const std::vector<float>& w,
                                   float eps) {
  std::array<float, 16> lanes{};
  for (size_t i = 0; i < x.size(); ++i) {
    const float v = Bf16ToFloat(x[i]);
    lanes[i % 16] = __builtin_fmaf(v, v, lanes[i % 16]);
  }
  for (size_t width = 8; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  const float inverse = 1.0f / std::sqrt(lanes[0] / static_cast<float>(x.size()) + eps);
  std::vector<bf16> y;
  for (size_t i = 0; i < x.size(); ++i)
    y.push_back(FloatToBf16(Bf16ToFloat(x[i]) * inverse * w[i]));
  return y;
}

TEST_CASE("rms_norm equals the scalar form on every path and fills the padding") {
  const NumericsMxcsrScope mxcsr;
  std::mt19937 rng(std::random_device{}());
  for (int64_t n : {1, 8, 15, 16, 17, 64, 172, 192, 768, 2048, 4544}) {
    const std::vector<bf16> x = RandomRow(rng, n);
    const std::vector<float> w = RandomFloats(rng, n);
    const int64_t padded = RoundUp(n, 32);
    std::vector<bf16> expected = ReferenceRmsNorm(x, w, 1e-5f);
    expected.resize(static_cast<size_t>(padded), 0);
    for (const auto& [name, kernels] : Paths()) {
      std::vector<bf16> y(static_cast<size_t>(padded) + 8, kPoison);
      kernels->rms_norm(x.data(), w.data(), n, padded, 1e-5f, y.data());
      INFO(name << ", n " << n);
      REQUIRE(std::vector<bf16>(y.end() - 8, y.end()) == std::vector<bf16>(8, kPoison));
      y.resize(static_cast<size_t>(padded));
      REQUIRE(y == expected);
      std::vector<bf16> in_place = x;  // as for the norms of heads
      kernels->rms_norm(in_place.data(), w.data(), n, n, 1e-5f, in_place.data());
      REQUIRE(std::equal(in_place.begin(), in_place.end(), expected.begin()));
    }
  }
}

TEST_CASE("rms_norm is close to the norm in double") {
  const NumericsMxcsrScope mxcsr;
  std::mt19937 rng(5);
  const std::vector<bf16> x = RandomRow(rng, 2048);
  const std::vector<float> w = RandomFloats(rng, 2048);
  double squares = 0;
  for (bf16 v : x) squares += std::pow(double{Bf16ToFloat(v)}, 2);
  const double inverse = 1 / std::sqrt(squares / 2048 + 1e-6);
  std::vector<bf16> y(2048);
  GetElementwiseKernels(SupportedIsas().back())
      .rms_norm(x.data(), w.data(), 2048, 2048, 1e-6f, y.data());
  for (size_t i = 0; i < y.size(); ++i)
    CHECK(
        double{Bf16ToFloat(y[i])} ==
        Approx(double{Bf16ToFloat(x[i])} * inverse * double{w[i]}).epsilon(0.00392).margin(1e-30));
}

std::vector<bf16> ReferenceLayerNorm(const std::vector<bf16>& x, const std::vector<float>& w,
                                     const std::vector<float>& b, float eps) {
  const auto fold = [&](const auto& term) {
    std::array<float, 16> lanes{};
    for (size_t i = 0; i < x.size(); ++i) lanes[i % 16] = term(lanes[i % 16], Bf16ToFloat(x[i]));
    return FoldSum(lanes.data()) / static_cast<float>(x.size());
  };
  const float mean = fold([](float sum, float v) { return sum + v; });
  const float variance =
      fold([&](float sum, float v) { return __builtin_fmaf(v - mean, v - mean, sum); });
  const float inverse = 1.0f / std::sqrt(variance + eps);
  std::vector<bf16> y;
  for (size_t i = 0; i < x.size(); ++i)
    y.push_back(FloatToBf16(__builtin_fmaf((Bf16ToFloat(x[i]) - mean) * inverse, w[i], b[i])));
  return y;
}

TEST_CASE("layer_norm equals the scalar form on every path and fills the padding") {
  const NumericsMxcsrScope mxcsr;
  std::mt19937 rng(std::random_device{}());
  for (int64_t n : {1, 8, 15, 16, 17, 64, 96, 172, 4544}) {
    const std::vector<bf16> x = RandomRow(rng, n);
    const std::vector<float> w = RandomFloats(rng, n), b = RandomFloats(rng, n);
    const int64_t padded = RoundUp(n, 32);
    std::vector<bf16> expected = ReferenceLayerNorm(x, w, b, 1e-5f);
    expected.resize(static_cast<size_t>(padded), 0);
    expected.resize(static_cast<size_t>(padded) + 8, kPoison);
    for (const auto& [name, kernels] : Paths()) {
      std::vector<bf16> y(static_cast<size_t>(padded) + 8, kPoison);
      kernels->layer_norm(x.data(), w.data(), b.data(), n, padded, 1e-5f, y.data());
      INFO(name << ", n " << n);
      REQUIRE(y == expected);
    }
  }
}

TEST_CASE("layer_norm is close to the norm in double") {
  const NumericsMxcsrScope mxcsr;
  std::mt19937 rng(6);
  std::vector<bf16> x = RandomRow(rng, 2048);
  for (bf16& v : x) v = FloatToBf16(Bf16ToFloat(v) + 5);  // far from 0, where one pass would fail
  const std::vector<float> w = RandomFloats(rng, 2048), b = RandomFloats(rng, 2048);
  double mean = 0, squares = 0;
  for (bf16 v : x) mean += double{Bf16ToFloat(v)} / 2048;
  for (bf16 v : x) squares += std::pow(double{Bf16ToFloat(v)} - mean, 2);
  const double inverse = 1 / std::sqrt(squares / 2048 + 1e-5);
  std::vector<bf16> y(2048);
  GetElementwiseKernels(SupportedIsas().back())
      .layer_norm(x.data(), w.data(), b.data(), 2048, 2048, 1e-5f, y.data());
  for (size_t i = 0; i < y.size(); ++i) {
    const double exact = (double{Bf16ToFloat(x[i])} - mean) * inverse * double{w[i]} + double{b[i]};
    CHECK(double{Bf16ToFloat(y[i])} == Approx(exact).epsilon(0.00392).margin(2e-6));
  }
}

TEST_CASE("add, scale and soft_cap equal their scalar forms on every path") {
  const NumericsMxcsrScope mxcsr;
  std::mt19937 rng(std::random_device{}());
  for (size_t n : {1u, 15u, 16u, 17u, 96u, 331u}) {
    const std::vector<bf16> x = RandomRow(rng, static_cast<int64_t>(n));
    const std::vector<bf16> y = RandomRow(rng, static_cast<int64_t>(n));
    std::vector<float> logits = RandomFloats(rng, static_cast<int64_t>(n));
    for (float& v : logits) v *= 40;
    logits[n / 2] = std::numeric_limits<float>::quiet_NaN();
    for (const auto& [name, kernels] : Paths()) {
      std::vector<bf16> sum = x, scaled = x;
      std::vector<float> capped = logits;
      for (std::vector<bf16>* row : {&sum, &scaled}) row->push_back(kPoison);
      capped.push_back(77);
      kernels->add(y.data(), static_cast<int64_t>(n), sum.data());
      kernels->scale(11.3125f, static_cast<int64_t>(n), scaled.data());
      kernels->soft_cap(30.0f, static_cast<int64_t>(n), capped.data());
      INFO(name << ", n " << n);
      for (size_t i = 0; i < n; ++i) {
        REQUIRE(sum[i] == FloatToBf16(Bf16ToFloat(x[i]) + Bf16ToFloat(y[i])));
        REQUIRE(scaled[i] == FloatToBf16(Bf16ToFloat(x[i]) * 11.3125f));
        const float expected = CanonicalizeNan(30.0f * Tanh(logits[i] * (1.0f / 30.0f)));
        REQUIRE(std::memcmp(&capped[i], &expected, sizeof(float)) == 0);
      }
      REQUIRE((sum[n] == kPoison && scaled[n] == kPoison && capped[n] == 77));
    }
  }
}

TEST_CASE("rope equals rule N5 on every path") {
  const NumericsMxcsrScope mxcsr;
  std::mt19937 rng(std::random_device{}());
  for (int64_t d : {2, 16, 32, 64, 80, 96, 128, 256}) {
    const std::vector<bf16> head = RandomRow(rng, d);
    const std::vector<float> cos = RandomFloats(rng, d / 2), sin = RandomFloats(rng, d / 2);
    std::vector<bf16> expected = head;
    for (size_t i = 0, half = static_cast<size_t>(d / 2); i < half; ++i) {
      const float x0 = Bf16ToFloat(head[i]), x1 = Bf16ToFloat(head[i + half]);
      expected[i] = FloatToBf16(__builtin_fmaf(x0, cos[i], -(x1 * sin[i])));
      expected[i + half] = FloatToBf16(__builtin_fmaf(x1, cos[i], x0 * sin[i]));
    }
    for (const auto& [name, kernels] : Paths()) {
      std::vector<bf16> rotated = head;
      rotated.push_back(kPoison);
      kernels->rope(rotated.data(), d, cos.data(), sin.data());
      INFO(name << ", d " << d);
      REQUIRE(rotated.back() == kPoison);
      rotated.pop_back();
      REQUIRE(rotated == expected);
    }
  }
}

TEST_CASE("write_kv puts every element where kv_layout.h says and touches nothing else") {
  std::mt19937 rng(3);
  for (int d : {16, 64, 80, 128}) {
    for (int page_tokens : {16, 32, 64}) {
      const KvLayout layout = KvLayout::Of({{1, 32, 32}, {2, d, d}}, KvType::kBf16, page_tokens);
      const int layer = 1, head = 1, padded = layout.shape(layer).key_dim_padded();
      std::vector<bf16> plane(static_cast<size_t>(layout.planes[layer].bytes / 2), kPoison);
      std::vector<bf16> expected = plane;
      const int64_t k_at = layout.KOffset(layer, head) / 2, v_at = layout.VOffset(layer, head) / 2;
      for (int slot = 0; slot < page_tokens; slot += 1 + static_cast<int>(rng() % 3)) {
        const std::vector<bf16> k = RandomRow(rng, d), v = RandomRow(rng, d);
        GetElementwiseKernels(SupportedIsas().back())
            .write_kv(layout, layer, head, k.data(), v.data(),
                      reinterpret_cast<std::byte*>(plane.data()), slot);
        const int group = slot / 16, token = slot % 16;
        for (int i = 0; i < padded; ++i)
          expected[static_cast<size_t>(k_at + ((group * (padded / 2) + i / 2) * 16 + token) * 2 +
                                       i % 2)] = i < d ? k[static_cast<size_t>(i)] : bf16{0};
        for (int i = 0; i < d; ++i)
          expected[static_cast<size_t>(v_at + ((group * 8 + token / 2) * d + i) * 2 + token % 2)] =
              v[static_cast<size_t>(i)];
      }
      INFO("d " << d << ", pages of " << page_tokens);
      REQUIRE(plane == expected);
    }
  }
}

// Encodes like write_kv: the scale is the max magnitude / 127.
struct Encoded {
  float scale = 0;
  std::vector<int8_t> numbers;
};
Encoded Int8Of(const std::vector<bf16>& x) {
  Encoded result;
  float largest = 0;
  for (bf16 v : x) largest = std::max(largest, std::abs(Bf16ToFloat(v)));
  result.scale = largest / 127.0f;
  for (bf16 v : x) {
    const float quotient = Bf16ToFloat(v) * (1.0f / result.scale);
    result.numbers.push_back(static_cast<int8_t>(std::nearbyint(std::min(quotient, 127.0f))));
  }
  return result;
}

TEST_CASE("write_kv encodes int8 with a scale per token and head, alike on every path") {
  const NumericsMxcsrScope mxcsr;
  std::mt19937 rng(std::random_device{}());
  for (int d : {16, 64, 80, 128}) {
    const KvLayout layout = KvLayout::Of({{3, d, d}}, KvType::kInt8, 32);
    std::vector<std::byte> expected(static_cast<size_t>(layout.planes[0].bytes), std::byte{0x7f});
    std::vector<std::vector<std::byte>> planes(Paths().size(), expected);
    for (int slot : {0, 1, 5, 15, 16, 31}) {
      const std::vector<bf16> k = RandomRow(rng, d), v = RandomRow(rng, d);
      for (size_t i = 0; i < planes.size(); ++i)
        Paths()[i].second->write_kv(layout, 0, 1, k.data(), v.data(), planes[i].data(), slot);
      const Encoded key = Int8Of(k), value = Int8Of(v);
      std::byte* const k_group =
          expected.data() + layout.KOffset(0, 1) + slot / 16 * layout.KGroupBytes(0);
      std::byte* const v_group =
          expected.data() + layout.VOffset(0, 1) + slot / 16 * layout.VGroupBytes(0);
      std::memcpy(k_group + slot % 16 * 4, &key.scale, 4);
      std::memcpy(v_group + slot % 16 * 4, &value.scale, 4);
      for (int i = 0; i < d; ++i) {
        k_group[64 + i * 16 + slot % 16] = static_cast<std::byte>(key.numbers[i]);
        v_group[64 + slot % 16 * d + i] = static_cast<std::byte>(value.numbers[i]);
      }
    }
    for (const auto& plane : planes) REQUIRE(plane == expected);
  }
}

TEST_CASE("int8 of zeros and of what is not finite has a finite scale") {
  const NumericsMxcsrScope mxcsr;
  const KvLayout layout = KvLayout::Of({{1, 16, 16}}, KvType::kInt8, 16);
  for (const bf16 odd :
       {bf16{0}, bf16{0x8000}, bf16{0x0001}, bf16{0x7f80}, bf16{0xff80}, bf16{0x7fc0}}) {
    std::vector<bf16> k(16, 0), v(16, 0);
    k[3] = v[7] = odd;
    std::vector<std::byte> first;
    for (const auto& [name, kernels] : Paths()) {
      std::vector<std::byte> plane(static_cast<size_t>(layout.planes[0].bytes));
      kernels->write_kv(layout, 0, 0, k.data(), v.data(), plane.data(), 0);
      const float scale = *reinterpret_cast<const float*>(plane.data());
      CHECK(std::isfinite(scale));
      CHECK((scale == 0) == ((odd & 0x7f80) != 0x7f80 || odd == 0x7fc0));
      if (first.empty()) first = plane;
      CHECK(plane == first);
    }
  }
}

TEST_CASE("exp2 is exact at integers and within 1.8e-7 elsewhere") {
  const NumericsMxcsrScope mxcsr;
  CHECK(Exp2(0.0f) == 1.0f);
  CHECK(Exp2(-0.0f) == 1.0f);
  CHECK(Exp2(-std::numeric_limits<float>::infinity()) == 0.0f);
  CHECK(Exp2(-1e30f) == 0.0f);
  CHECK(Exp2(-126.5f) == 0.0f);
  CHECK(Exp2(128.0f) == std::numeric_limits<float>::infinity());
  CHECK(std::isnan(Exp2(std::numeric_limits<float>::quiet_NaN())));
  for (int n = -126; n < 128; ++n) CHECK(Exp2(static_cast<float>(n)) == std::ldexp(1.0f, n));
  double worst = 0;
  for (float x = -125.9f; x < 127.9f; x += 0.000917f) {
    const double exact = std::exp2(double{x});
    worst = std::max(worst, std::abs(double{Exp2(x)} - exact) / exact);
  }
  CHECK(worst < 1.8e-7);
}

TEST_CASE("tanh is within 4e-7, odd, and 1 at the ends") {
  const NumericsMxcsrScope mxcsr;
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(Tanh(0.0f) == 0.0f);
  CHECK(std::signbit(Tanh(-0.0f)));
  for (float x : {9.0f, 12.0f, 1e30f, infinity}) {
    CHECK(Tanh(x) == Approx(1.0f).epsilon(2e-7));
    CHECK(Tanh(x) <= 1.0f);
    CHECK(Tanh(-x) == -Tanh(x));
  }
  CHECK(std::isnan(Tanh(std::numeric_limits<float>::quiet_NaN())));
  double worst = 0;
  for (float x = 1e-30f; x < 20; x *= 1.00003f) {
    const double exact = std::tanh(double{x});
    worst = std::max(worst, std::abs(double{Tanh(x)} - exact) / exact);
    if (Tanh(-x) != -Tanh(x)) FAIL("not odd at " << x);
  }
  CHECK(worst < 4e-7);
}

TEST_CASE("gelu in both forms is close to double") {
  const NumericsMxcsrScope mxcsr;
  const double root = std::sqrt(2 / std::acos(-1.0));
  double worst = 0, worst_beyond = 0, worst_tanh = 0;
  for (float a = 1e-6f; a < 40; a *= 1.0003f) {
    for (const float x : {a, -a}) {
      const double exact = 0.5 * double{x} * std::erfc(-double{x} / std::sqrt(2.0));
      const double error = std::abs(double{Gelu(x)} - exact);
      if (a <= 5) worst = std::max(worst, error / std::abs(exact));
      if (a > 5) worst_beyond = std::max(worst_beyond, error / double{std::max(x, 1.0f)});
      const double u = root * (double{x} + 0.044715 * std::pow(double{x}, 3));
      const double exact_tanh = double{x} / (1 + std::exp(-2 * u));
      if (a <= 4) {
        const double relative = std::abs(double{GeluTanh(x)} - exact_tanh) / std::abs(exact_tanh);
        worst_tanh = std::max(worst_tanh, relative);
      }
    }
  }
  CHECK(worst < 4e-6);
  CHECK(worst_beyond < 1e-6);
  CHECK(worst_tanh < 2e-6);
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK((Gelu(0.0f) == 0 && GeluTanh(0.0f) == 0));
  CHECK((Gelu(infinity) == infinity && GeluTanh(infinity) == infinity));
  CHECK((Gelu(-infinity) == 0 && Gelu(-1e30f) == 0 && GeluTanh(-1e30f) == 0));
  CHECK(std::isnan(Gelu(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(GeluTanh(std::numeric_limits<float>::quiet_NaN())));
}

// Returns x as DAZ changes it.
float Daz(float x) { return std::fabs(x) < 0x1p-126f ? 0.0f : x; }

TEST_CASE("the exp2 of weights gives the bits of exp2 up to 100") {
  const NumericsMxcsrScope mxcsr;
  std::mt19937 rng(1);
  const auto check = [](float x) {
    const float a = Exp2(x), b = Daz(Exp2Weight(x));
    if (std::memcmp(&a, &b, sizeof a) != 0) FAIL(x << " gives " << a << " and " << b);
  };
  for (int i = 0; i < 1000000; ++i) {
    const float x = __builtin_bit_cast(float, static_cast<uint32_t>(rng()));
    if (x <= 100.0f) check(x);
  }
  for (float x = -130; x < -120; x += 0x1p-14f) check(x);
  CHECK(std::isnan(Exp2Weight(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("weights are rounded to bf16 to the nearest, ties to even") {
  const NumericsMxcsrScope mxcsr;
  const auto check = [](uint32_t bits) {
    const float x = __builtin_bit_cast(float, bits);
    const float a = RoundBf16(x), b = RoundWeight(x);
    if (std::memcmp(&a, &b, sizeof a) != 0) FAIL(x << " gives " << a << " and " << b);
  };
  check(0);
  for (const uint32_t exponent : {1u, 127u, 237u})
    for (uint32_t mantissa = 0; mantissa < 1u << 23; ++mantissa) check(exponent << 23 | mantissa);
  std::mt19937 rng(2);
  for (int i = 0; i < 1000000; ++i) check(0x800000 + static_cast<uint32_t>(rng()) % (237u << 23));
  CHECK(RoundWeight(__builtin_bit_cast(float, 0x7fffu)) == 0.0f);
  CHECK(std::isnan(RoundWeight(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace baton
