// This machine's instructions, with AMX tiles if present, and the emulated ones, against the FMA
// form on far more outputs than linear_test compares with the scalar form.
#include <catch2/catch.hpp>
#include <vector>

#include "tests/engine/cpu/kernel_paths.h"
#include "tests/engine/cpu/linear_problem.h"

namespace baton {
namespace {

constexpr Values kAllValues[] = {Values::kNormal, Values::kWideExponents, Values::kTiny,
                                 Values::kSpecial};

}  // namespace

TEST_CASE("every path equals the FMA form on ten million outputs of each type of weights") {
  const WeightFormat format = GENERATE(values<WeightFormat>({{},
                                                             {WeightType::kInt8, 0},
                                                             {WeightType::kInt4, 32},
                                                             {WeightType::kInt4, 64},
                                                             {WeightType::kInt4, 128}}));
  const std::vector<KernelPath> paths = LinearPaths();  // AVX2, the FMA form, first
  REQUIRE(paths.size() > 1);
  ComputePool pool(2, 0);
  int64_t outputs = 0;
  for (uint32_t seed = 0; outputs < 10'000'000; ++seed) {
    Shape shape;
    shape.format = format;
    shape.rows = 400 + 37 * static_cast<int64_t>(seed);
    shape.n = 4096 - 160 * static_cast<int64_t>(seed % 5);
    shape.k = 33 + 61 * static_cast<int64_t>(seed % 4);
    shape.epilogue = Epilogue::kFp32;
    LinearProblem problem(shape, kAllValues[seed % 4], seed);
    const std::vector<uint32_t> expected = problem.Run(*paths[0].kernels.linear, pool);
    for (size_t path = 1; path < paths.size(); ++path) {
      INFO(paths[path].name << " rows " << shape.rows << " n " << shape.n << " k " << shape.k
                            << " seed " << seed << " weights " << format.Name());
      REQUIRE((problem.Run(*paths[path].kernels.linear, pool) == expected));
    }
    outputs += shape.rows * shape.n;
  }
}

}  // namespace baton
