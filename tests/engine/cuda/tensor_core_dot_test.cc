// The model of the tensor cores' dot product: cases that its definition decides, an implementation
// in another arithmetic, and the committed predictions.

#include "engine/numerics/tensor_core_dot.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <vector>

#include "engine/cuda/check/predictions.h"

namespace baton {
namespace {

using Operands = std::array<bf16, kTensorCoreGroup>;

uint32_t Bits(float value) { return __builtin_bit_cast(uint32_t, value); }
float Value(uint32_t bits) { return __builtin_bit_cast(float, bits); }
bf16 Bf16(float value) {
  const bf16 rounded = FloatToBf16(value);
  REQUIRE(Bf16ToFloat(rounded) == value);  // a value of a test is exact
  return rounded;
}

// Returns c + the sum of the products, the rest of the 16 being zeros.
float Step(float c, const std::vector<std::pair<float, float>>& products) {
  Operands a{}, b{};
  for (size_t i = 0; i < products.size(); ++i) {
    a[i] = Bf16(products[i].first);
    b[i] = Bf16(products[i].second);
  }
  return Value(TensorCoreStep(Bits(c), a.data(), b.data()));
}

float Power(int exponent) { return std::ldexp(1.0f, exponent); }

std::vector<std::pair<float, float>> Times(int count, float a, float b) {
  return std::vector<std::pair<float, float>>(count, {a, b});
}

TEST_CASE("sums that fit are exact") {
  CHECK(Step(0, Times(16, 1, 1)) == 16);
  CHECK(Step(0.5f, {{3, 5}, {-2, 4}, {0.25f, 0.5f}}) == 0.5f + 15 - 8 + 0.125f);
  CHECK(Step(-7, {}) == -7);
}

TEST_CASE("a term is cut to 25 fractional bits, and the sum to fp32, toward zero") {
  CHECK(Step(1, Times(16, Power(-12), Power(-13))) == 1 + Power(-21));  // 2^-25 sixteen times
  CHECK(Step(1, Times(16, Power(-13), Power(-13))) == 1);               // 2^-26 is cut away
  CHECK(Step(1, {{-Power(-12), Power(-13)}}) == 1 - Power(-24));        // 1 - 2^-25, cut
  CHECK(Step(1, {{-Power(-13), Power(-13)}}) == 1);
  CHECK(Step(-1, {{-Power(-12), Power(-12)}}) == -1);     // rounding to nearest even would agree
  CHECK(Step(1, Times(3, Power(-12), Power(-13))) == 1);  // 0.75 of a last place: nearest differs
  CHECK(Step(-1, Times(3, -Power(-12), Power(-13))) == -1);
}

TEST_CASE("products keep the exponents of their operands") {
  // 1.5 * 1.5 = 2.25 counts with exponent 0, so 2^-25 beside it survives, 2^-26 does not.
  CHECK(Step(Power(-25), {{1.5f, 1.5f}, {-1.5f, 1.5f}}) == Power(-25));
  CHECK(Step(Power(-26), {{1.5f, 1.5f}, {-1.5f, 1.5f}}) == 0);
  CHECK(Step(Power(-25), {{2, 1}, {-2, 1}}) == 0);
}

TEST_CASE("large terms that cancel have pushed small ones away") {
  CHECK(Step(1, {{Power(50), Power(50)}, {-Power(50), Power(50)}}) == 0);
  CHECK(Step(Power(100), {{-Power(50), Power(50)}, {1, 1}}) == 0);
  CHECK(Step(1, {{Power(12), Power(13)}, {-Power(12), Power(13)}}) == 1);
}

TEST_CASE("subnormals are neither flushed nor rounded up") {
  CHECK(Step(Power(-149), {}) == Power(-149));
  CHECK(Step(0, {{Power(-133), 1}}) == Power(-133));  // the smallest bf16
  CHECK(Step(0, {{Power(-100), Power(-46)}}) == Power(-146));
  CHECK(Step(0, {{Power(-75), Power(-75)}}) == 0);  // 2^-150, cut toward zero
  CHECK(Step(0, Times(2, Power(-75), Power(-75))) == Power(-149));
  CHECK(Step(0, Times(16, Power(-76), Power(-76))) == 0);  // 2^-152 is below the 25 bits
  CHECK(Step(0, Times(4, Power(-76), Power(-75))) == Power(-149));
}

TEST_CASE("zero is +0, whatever the signs, and zeros beside finite values change nothing") {
  CHECK(Bits(Step(0, {})) == 0);
  CHECK(Bits(Step(-0.0f, {{-0.0f, 1}, {0, -1}})) == 0);
  CHECK(Bits(Step(1, {{-1, 1}})) == 0);
  CHECK(Step(3, Times(16, 0, Power(100))) == 3);
}

TEST_CASE("sums beyond fp32 are infinite, those below 2^128 are cut") {
  const float largest = std::numeric_limits<float>::max();
  CHECK(Step(largest, {{Power(100), 1}}) == largest);
  CHECK(Step(largest, {{Power(104), 1}}) == std::numeric_limits<float>::infinity());
  CHECK(Step(-largest, {{-Power(64), Power(63)}}) == -std::numeric_limits<float>::infinity());
  CHECK(Step(0, {{Power(127), Power(100)}, {-Power(127), Power(100)}}) == 0);
}

TEST_CASE("infinities and NaN go past the sum") {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto nan = tensor_core::kNan;
  CHECK(Step(infinity, {{1, -1}}) == infinity);
  CHECK(Step(1, {{infinity, -2}}) == -infinity);
  CHECK(Bits(Step(infinity, {{infinity, -2}})) == nan);
  CHECK(Bits(Step(1, {{infinity, 0}})) == nan);
  CHECK(Bits(Step(std::nanf(""), {})) == nan);
  Operands a{}, b{};
  a[7] = 0xffc1;
  CHECK(TensorCoreStep(0, a.data(), b.data()) == nan);
}

// Computes the same definition in doubles, which hold each of its numbers exactly.
uint32_t StepInDoubles(uint32_t c, const Operands& a, const Operands& b) {
  const auto exponent_of = [](double value) {
    return value == 0 ? -126 : std::max(std::ilogb(value), -126);
  };
  std::vector<std::pair<double, int>> terms = {{Value(c), exponent_of(Value(c))}};
  for (int i = 0; i < kTensorCoreGroup; ++i) {
    const double left = Bf16ToFloat(a[i]), right = Bf16ToFloat(b[i]);
    terms.emplace_back(left * right,
                       left * right == 0 ? -126 : exponent_of(left) + exponent_of(right));
  }
  int emax = -126;
  for (const auto& [value, exponent] : terms) emax = std::max(emax, exponent);
  double sum = 0;
  for (const auto& [value, exponent] : terms) sum += std::trunc(std::ldexp(value, 25 - emax));
  const double exact = std::ldexp(sum, emax - 25);
  float cut = static_cast<float>(exact);
  if (std::abs(exact) < std::ldexp(1.0, 128) &&
      std::abs(static_cast<double>(cut)) > std::abs(exact))
    cut = std::nextafter(cut, 0.0f);
  return Bits(cut == 0 ? 0.0f : cut);
}

TEST_CASE("any finite step equals the definition in doubles") {
  std::mt19937 random(25);
  for (int round = 0; round < 20000; ++round) {
    // Spreads of exponents from none to all that bf16 has, about a centre of any size.
    const int spread = std::uniform_int_distribution<int>(0, 6)(random) * 20 + 1;
    const int lowest = std::uniform_int_distribution<int>(0, 254 - spread)(random);
    const auto draw = [&] {
      const uint32_t exponent = lowest + static_cast<uint32_t>(random() % spread);
      return static_cast<bf16>((random() & 0x807fu) | exponent << 7);
    };
    Operands a, b;
    for (bf16& value : a) value = draw();
    for (bf16& value : b) value = random() % 8 == 0 ? bf16{0} : draw();
    const uint32_t c = static_cast<uint32_t>(draw()) << 16 | (random() & 0xffffu);
    INFO("round " << round);
    REQUIRE(TensorCoreStep(c, a.data(), b.data()) == StepInDoubles(c, a, b));
  }
}

TEST_CASE("the order inside a group of 16 is free, the order of groups is not") {
  std::mt19937 random(16);
  std::vector<bf16> a(64), b(64);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = InputAt(Distribution::kWide, 7, 1, 0, static_cast<int64_t>(i), 64);
    b[i] = InputAt(Distribution::kWide, 7, 2, 0, static_cast<int64_t>(i), 64);
  }
  const uint32_t expected = TensorCoreDot(a.data(), b.data(), 64);
  std::vector<int> order(16);
  for (int i = 0; i < 16; ++i) order[i] = i;
  for (int round = 0; round < 20; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<bf16> a2(64), b2(64);
    for (int i = 0; i < 64; ++i) {
      a2[i] = a[i / 16 * 16 + order[i % 16]];
      b2[i] = b[i / 16 * 16 + order[i % 16]];
    }
    CHECK(TensorCoreDot(a2.data(), b2.data(), 64) == expected);
  }
  int changed = 0;
  constexpr int kLong = 1024;
  a.resize(kLong);
  b.resize(kLong);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    for (int i = 0; i < kLong; ++i) {
      a[i] = InputAt(Distribution::kNormal, seed, 1, 0, i, kLong);
      b[i] = InputAt(Distribution::kNormal, seed, 2, 0, i, kLong);
    }
    const uint32_t forward = TensorCoreDot(a.data(), b.data(), kLong);
    uint32_t backward = 0;
    for (int at = kLong - 16; at >= 0; at -= 16)
      backward = TensorCoreStep(backward, &a[at], &b[at]);
    changed += forward != backward ? 1 : 0;
  }
  CHECK(changed > 10);
}

TEST_CASE("the sum of a long product stays near its value") {
  const Prediction shape{Distribution::kNormal, 3, 2, 3, 4096};
  const std::vector<uint32_t> product = PredictedProduct(shape);
  for (int row = 0; row < shape.m; ++row) {
    for (int column = 0; column < shape.n; ++column) {
      double exact = 0, size = 0;
      for (int k = 0; k < shape.k; ++k) {
        const double term =
            double{Bf16ToFloat(InputAt(shape.distribution, 3, 1, row, k, shape.k))} *
            Bf16ToFloat(InputAt(shape.distribution, 3, 2, column, k, shape.k));
        exact += term;
        size += std::abs(term);
      }
      CHECK(std::abs(Value(product[row * shape.n + column]) - exact) < size * 1e-5);
    }
  }
}

TEST_CASE("inputs are near their distributions") {
  double sum = 0, squares = 0, outliers = 0;
  for (int i = 0; i < 4096; ++i) {
    const double value = Bf16ToFloat(InputAt(Distribution::kNormal, 1, 1, i / 64, i % 64, 64));
    sum += value;
    squares += value * value;
    if (std::abs(Bf16ToFloat(InputAt(Distribution::kOutlier, 1, 1, i / 64, i % 64, 64))) > 8)
      ++outliers;
    const float wide = Bf16ToFloat(InputAt(Distribution::kWide, 1, 1, i / 64, i % 64, 64));
    REQUIRE(std::abs(wide) >= Power(-20));
    REQUIRE(std::abs(wide) < Power(21));
  }
  CHECK(std::abs(sum / 4096) < 0.1);
  CHECK(std::abs(squares / 4096 - 1) < 0.1);
  CHECK(outliers > 56);  // of 64 rows; a small value times 1024 may stay below 8
  CHECK(outliers <= 64);
}

TEST_CASE("the committed predictions are those of the model") {
  std::ifstream file(BATON_TEST_DATA "/golden/cuda-sm90-gemm.txt");
  const std::vector<Prediction> committed = ReadPredictions(file);
  const std::vector<Prediction> computed = AllPredictions();
  REQUIRE(committed.size() == computed.size());
  for (size_t i = 0; i < computed.size(); ++i) {
    INFO("line " << LineOf(computed[i]));
    CHECK(committed[i] == computed[i]);
  }
  CHECK(DigestOf(std::vector<uint32_t>{}) == 0xcbf29ce484222325u);  // FNV-1a's published start
  CHECK(DigestOf(std::vector<uint32_t>{0x64636261}) == 0xfc179f83ee0724ddu);  // "abcd"
}

TEST_CASE("a damaged file of predictions is no file") {
  std::istringstream good("# comment\nnormal 1 2 3 64 00000000000000ff\n");
  CHECK(ReadPredictions(good).size() == 1);
  for (const char* text : {"normal 1 2 3 64\n", "usual 1 2 3 64 00000000000000ff\n",
                           "normal 1 2 3 64 ff\n", "normal 1 2 3 64 00000000000000ff more\n"}) {
    std::istringstream bad(text);
    INFO(text);
    CHECK(ReadPredictions(bad).empty());
  }
}

}  // namespace
}  // namespace baton
