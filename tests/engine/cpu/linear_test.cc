#include "engine/cpu/linear/linear.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "engine/cpu/linear/linear_tables.h"
#include "tests/engine/cpu/emulated_kernels.h"
#include "tests/engine/cpu/kernel_paths.h"
#include "tests/engine/cpu/linear_problem.h"

namespace baton {
namespace {

bool MachineHas(Isa isa) {
  const std::vector<Isa> supported = SupportedIsas();
  return std::find(supported.begin(), supported.end(), isa) != supported.end();
}

void RequireEqualOnAllPaths(std::vector<KernelPath>& paths, ComputePool& pool, const Shape& shape,
                            Values values, uint32_t seed) {
  LinearProblem problem(shape, values, seed);
  const std::vector<uint32_t> expected = problem.Expected();
  for (KernelPath& path : paths) {
    INFO(path.name << " rows " << shape.rows << " n " << shape.n << " k " << shape.k << " epilogue "
                   << static_cast<int>(shape.epilogue) << " bias " << shape.bias << " values "
                   << static_cast<int>(values) << " seed " << seed << " weights "
                   << shape.format.Name());
    const std::vector<uint32_t> got = problem.Run(*path.kernels.linear, pool);
    const auto [a, b] = std::mismatch(got.begin(), got.end(), expected.begin());
    INFO("first difference in row " << (a - got.begin()) / problem.y_stride() << ", column "
                                    << (a - got.begin()) % problem.y_stride());
    REQUIRE(a == got.end());
  }
}

constexpr Values kAllValues[] = {Values::kNormal, Values::kWideExponents, Values::kTiny,
                                 Values::kSpecial};
constexpr WeightFormat kBf16{}, kInt8{WeightType::kInt8, 0}, kInt4g32{WeightType::kInt4, 32},
    kInt4g64{WeightType::kInt4, 64}, kInt4g128{WeightType::kInt4, 128};
constexpr std::array kAllFormats = {kBf16, kInt8, kInt4g32, kInt4g64, kInt4g128};
constexpr Epilogue kAllEpilogues[] = {Epilogue::kBf16, Epilogue::kFp32,   Epilogue::kResidualAdd,
                                      Epilogue::kGelu, Epilogue::kSwiGlu, Epilogue::kGeGlu};

const LinearKernelSet::Tables& TablesOf(const LinearKernelSet& set, const WeightFormat& format) {
  if (format.type == WeightType::kBf16) return set.bf16;
  return format.type == WeightType::kInt8 ? set.int8 : set.int4;
}

TEST_CASE("packed weights: every element is where the layout says, padding is +0") {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {16, 32}, {37, 75}, {48, 64}}) {
    Shape shape;
    shape.n = n;
    shape.k = k;
    LinearProblem problem(shape, Values::kNormal, 5);
    const int64_t k_padded = RoundUp(k, 32);
    const bf16* const data = static_cast<const bf16*>(problem.weights().data);
    for (int64_t row = 0; row < RoundUp(n, 16); ++row) {
      for (int64_t i = 0; i < k_padded; ++i) {
        const bf16 packed = data[((row / 16 * (k_padded / 2) + i / 2) * 16 + row % 16) * 2 + i % 2];
        const bf16 expected =
            row < n && i < k ? problem.matrix()[static_cast<size_t>(row * k + i)] : bf16{0};
        REQUIRE(packed == expected);
      }
    }
  }
}

TEST_CASE("a norm taken while rows are packed gives the bits of one taken before") {
  std::vector<KernelPath> paths = LinearPaths();
  ComputePool pool(2, 0);
  std::mt19937 random(77);
  std::vector<float> weight(200), bias(200);
  for (float& w : weight) w = std::normal_distribution<float>(1, 0.3f)(random);
  for (float& b : bias) b = std::normal_distribution<float>(0, 0.1f)(random);
  uint32_t seed = 500;
  for (const WeightFormat& format : kAllFormats) {
    for (const int64_t rows : {1, 7, 14, 31, 90}) {  // serial and parallel, direct and panels
      for (const bool centred : {false, true}) {
        Shape shape;
        shape.rows = rows;
        shape.n = 144;
        shape.k = seed % 2 == 0 ? 200 : 160;
        shape.format = format;
        RowNorm norm;
        norm.weight = weight.data();
        norm.bias = bias.data();
        norm.n = shape.k;
        norm.n_padded = RoundUp(shape.k, 32);
        norm.eps = 1e-5f;
        LinearProblem problem(shape, Values::kNormal, ++seed);
        std::vector<std::vector<uint32_t>> got;
        for (KernelPath& path : paths) {
          const ElementwiseKernels& kernels = *path.kernels.elementwise;
          norm.apply = centred ? kernels.apply_layer_norm : kernels.apply_rms_norm;
          got.push_back(problem.RunNormed(*path.kernels.linear, pool, norm));
        }
        problem.TakeNorms(norm);
        const std::vector<uint32_t> expected = problem.Expected();
        for (size_t i = 0; i < paths.size(); ++i) {
          INFO(paths[i].name << " rows " << rows << " weights " << format.Name() << " centred "
                             << centred);
          REQUIRE(got[i] == expected);
        }
      }
    }
  }
}

TEST_CASE("rows picked out of others give the bits of the same rows in order") {
  std::vector<KernelPath> paths = LinearPaths();
  ComputePool pool(2, 0);
  std::mt19937 random(78);
  for (const WeightFormat& format : kAllFormats) {
    for (const size_t n_picked : {1, 3, 20, 45, 700}) {  // the last number needs several parts
      Shape shape;
      shape.rows = 41;
      shape.n = 96;
      shape.k = 75;
      shape.epilogue = n_picked % 2 == 0 ? Epilogue::kSwiGlu : Epilogue::kFp32;
      shape.format = format;
      LinearProblem problem(shape, Values::kNormal, static_cast<uint32_t>(random()));
      std::vector<int32_t> picked(n_picked);
      for (int32_t& row : picked) row = static_cast<int32_t>(random() % 41);
      const std::vector<uint32_t> all = problem.Expected();
      std::vector<uint32_t> expected;
      for (const int32_t row : picked) {
        const auto at = all.begin() + row * problem.y_stride();
        expected.insert(expected.end(), at, at + problem.y_stride());
      }
      for (KernelPath& path : paths) {
        INFO(path.name << " picked " << n_picked << " weights " << format.Name());
        REQUIRE((problem.RunRows(*path.kernels.linear, pool, picked) == expected));
      }
    }
  }
}

TEST_CASE("packed integers: every element is where the layout says, padding is the zero point") {
  for (const WeightFormat format : {kInt8, kInt4g32, kInt4g64, kInt4g128}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {16, 64}, {37, 75}, {48, 256}}) {
      Shape shape;
      shape.n = n;
      shape.k = k;
      shape.format = format;
      LinearProblem problem(shape, Values::kNormal, 5);
      const bool is_int8 = format.type == WeightType::kInt8;
      const int64_t k_padded = RoundUp(k, is_int8 ? 64 : format.group);
      const int64_t group_k = is_int8 ? k_padded : format.group, groups = k_padded / group_k;
      const int64_t group_bytes = 64 + group_k * (is_int8 ? 16 : 8);
      const uint8_t* data = static_cast<const uint8_t*>(problem.weights().data);
      INFO(format.Name() << " n " << n << " k " << k);
      REQUIRE(PackedWeights::Bytes(n, k, format) == RoundUp(n, 16) / 16 * groups * group_bytes);
      for (int64_t row = 0; row < RoundUp(n, 16); ++row) {
        for (int64_t i = 0; i < k_padded; ++i) {
          const uint8_t* group = data + (row / 16 * groups + i / group_k) * group_bytes;
          const int64_t at = i % group_k;
          float scale = -1;
          std::memcpy(&scale, group + row % 16 * 4, 4);
          REQUIRE(
              scale ==
              (row < n ? problem.scales()[static_cast<size_t>(row * groups + i / group_k)] : 0.0f));
          const uint8_t byte = group[64 + at / (is_int8 ? 4 : 8) * 64 + row % 16 * 4 + at % 4];
          const int stored = is_int8 ? byte - 128 : (at / 4 % 2 == 0 ? byte & 15 : byte >> 4) - 8;
          const int expected =
              row < n && i < k ? problem.integers()[static_cast<size_t>(row * k + i)] : 0;
          REQUIRE(stored == expected);
        }
      }
    }
  }
}

TEST_CASE("every path equals the scalar form: all row counts from 1 to 33") {
  std::vector<KernelPath> paths = LinearPaths();
  ComputePool pool(2, 0);
  const WeightFormat format = GENERATE(from_range(kAllFormats));
  for (int64_t rows = 1; rows <= 33; ++rows) {
    for (const Values values : kAllValues) {
      Shape shape;
      shape.format = format;
      shape.rows = rows;
      shape.n = 16 + 13 * (rows % 7);
      shape.k = 5 + 29 * (rows % 5);
      shape.epilogue = Epilogue::kFp32;
      RequireEqualOnAllPaths(paths, pool, shape, values, static_cast<uint32_t>(rows));
    }
  }
}

TEST_CASE("every path equals the scalar form: every epilogue, with and without bias") {
  std::vector<KernelPath> paths = LinearPaths();
  ComputePool pool(2, 0);
  uint32_t seed = 100;
  const WeightFormat format = GENERATE(from_range(kAllFormats));
  for (const Epilogue epilogue : kAllEpilogues) {
    for (const bool bias : {false, true}) {
      for (const Values values : kAllValues) {
        for (const int64_t rows : {1, 3, 7, 20, 40}) {
          Shape shape;
          shape.format = format;
          shape.rows = rows;
          shape.n = IsGated(epilogue) ? 96 : 83;
          shape.k = 80;
          shape.epilogue = epilogue;
          shape.bias = bias;
          RequireEqualOnAllPaths(paths, pool, shape, values, ++seed);
        }
      }
    }
  }
}

TEST_CASE("every path equals the scalar form: random shapes and threads", "[threads]") {
  std::vector<KernelPath> paths = LinearPaths();
  ComputePool one(1, 0), two(2, 20), three(3, 0);
  ComputePool* pools[] = {&one, &two, &three};
  const uint32_t first_seed = static_cast<uint32_t>(std::random_device()());
  for (uint32_t seed = first_seed; seed != first_seed + 150; ++seed) {
    std::mt19937 random(seed);
    Shape shape;
    shape.format = kAllFormats[random() % 5];
    shape.rows = 1 + random() % 60;
    shape.epilogue = kAllEpilogues[random() % std::size(kAllEpilogues)];
    shape.n = 1 + random() % 200;
    if (IsGated(shape.epilogue)) shape.n = RoundUp(shape.n, 32);
    shape.k = 1 + random() % 300;
    shape.bias = random() % 2 == 0;
    RequireEqualOnAllPaths(paths, *pools[random() % 3], shape, kAllValues[random() % 4], seed);
  }
}

TEST_CASE("K in several blocks, more rows than one job takes, a single output", "[threads]") {
  std::vector<KernelPath> paths = LinearPaths();
  ComputePool pool(2, 0);
  Shape shape;
  shape.epilogue = Epilogue::kFp32;
  shape.format = GENERATE(from_range(kAllFormats));
  for (const auto& [rows, n, k] : {std::tuple<int64_t, int64_t, int64_t>{5, 40, 1700},
                                   {35, 40, 1700},
                                   {70, 81, 1700},
                                   {300, 90, 2100},
                                   {200, 530, 600},
                                   {1100, 17, 40},
                                   {600, 33, 64},
                                   {2, 1, 33},
                                   {70, 1, 1}}) {
    shape.rows = rows;
    shape.n = n;
    shape.k = k;
    RequireEqualOnAllPaths(paths, pool, shape, Values::kWideExponents, static_cast<uint32_t>(k));
  }
}

TEST_CASE("rows of y that begin with cache lines") {
  std::vector<KernelPath> paths = LinearPaths();
  ComputePool pool(2, 0);
  uint32_t seed = 400;
  Shape shape;
  shape.whole_lines = true;
  shape.format = GENERATE(from_range(kAllFormats));
  for (const Epilogue epilogue : kAllEpilogues) {
    for (const int64_t rows : {20, 50, 130}) {
      // Whole lines, an odd pair and an odd block, and outputs that do not fill a block.
      for (const int64_t n : {64, 96, 144, 275}) {
        shape.rows = rows;
        shape.n = IsGated(epilogue) ? RoundUp(n, 32) : n;
        shape.k = 3 * rows;
        shape.epilogue = epilogue;
        shape.bias = n == 96;
        RequireEqualOnAllPaths(paths, pool, shape, Values::kNormal, ++seed);
      }
    }
  }
}

TEST_CASE("few rows of wide layers: work items of every size, and what is left of the last one",
          "[threads]") {
  std::vector<KernelPath> paths = LinearPaths();
  ComputePool one(1, 0), two(2, 0), three(3, 0);
  uint32_t seed = 300;
  for (const int64_t n : {2144, 1600, 1424, 1000, 592, 528, 250}) {
    for (const int64_t rows : {1, 2, 3, 7, 13}) {
      Shape shape;
      shape.rows = rows;
      shape.n = n;
      shape.k = rows == 1 && n < 1500 ? 1058 : 70;  // streams of both lengths of K
      shape.epilogue = n % 32 == 0 ? Epilogue::kSwiGlu : Epilogue::kFp32;
      for (ComputePool* pool : {&one, &two, &three}) {
        RequireEqualOnAllPaths(paths, *pool, shape, Values::kNormal, ++seed);
      }
    }
  }
}

TEST_CASE("a row's bits do not depend on its batch or on threads", "[threads]") {
  std::vector<KernelPath> paths = LinearPaths();
  ComputePool one(1, 0), three(3, 0);
  Shape shape;
  shape.rows = 50;
  shape.n = 160;
  shape.k = 600;
  shape.epilogue = Epilogue::kResidualAdd;
  shape.format = GENERATE(from_range(kAllFormats));
  LinearProblem problem(shape, Values::kNormal, 77);
  const std::vector<uint32_t> all = problem.Run(*paths[0].kernels.linear, one);
  for (KernelPath& path : paths) {
    INFO(path.name);
    REQUIRE(problem.Run(*path.kernels.linear, three) == all);
    for (const int64_t batch : {1, 2, 3, 12, 17, 25}) {
      for (int64_t begin = 0; begin < shape.rows; begin += batch) {
        const int64_t end = std::min(begin + batch, shape.rows);
        const std::vector<uint32_t> some = problem.Run(*path.kernels.linear, three, begin, end);
        REQUIRE(std::equal(some.begin(), some.end(), all.begin() + begin * problem.y_stride()));
      }
    }
  }
}

TEST_CASE("layers computed together have the bits of each alone", "[threads]") {
  std::vector<KernelPath> paths = LinearPaths();
  ComputePool two(2, 0), three(3, 0);
  std::mt19937 random(21);
  for (int round = 0; round < 12; ++round) {
    std::vector<LinearProblem> problems;
    std::vector<std::vector<uint32_t>> expected;
    for (size_t i = 0, n = 1 + random() % 9; i < n; ++i) {
      Shape shape;
      shape.rows = i % 3 == 0 ? 1 : i % 5 == 0 ? 600 : 1 + random() % 40;
      shape.epilogue = kAllEpilogues[random() % std::size(kAllEpilogues)];
      shape.n = IsGated(shape.epilogue) ? 96 : 1 + random() % 150;
      shape.k = 1 + random() % 90;
      expected.push_back(problems.emplace_back(shape, Values::kNormal, random()).Expected());
    }
    for (KernelPath& path : paths) {
      INFO(path.name << " round " << round);
      REQUIRE(LinearProblem::RunAll(problems, *path.kernels.linear, round % 2 ? two : three) ==
              expected);
    }
  }
}

TEST_CASE("every order of items gives each item once, and each member a part of its own") {
  for (const ItemOrder order : {ItemOrder::kInTurn, ItemOrder::kInParts}) {
    for (int64_t members = 1; members <= 8; ++members) {
      const int64_t step = ItemStep(order, members);
      for (int64_t items = 0; items <= 70; ++items) {
        INFO("order " << static_cast<int>(order) << " members " << members << " items " << items);
        std::vector<int> claims(static_cast<size_t>(items), 0);
        for (int64_t claim = 0; claim < items; ++claim) {
          const int64_t item = ItemOfClaim(order, claim, items, members);
          REQUIRE((item >= 0 && item < items));
          ++claims[static_cast<size_t>(item)];
          const int64_t next = claim + members;
          if (next >= items / members * members) continue;
          REQUIRE(ItemOfClaim(order, next, items, members) == item + step);
        }
        REQUIRE(std::count(claims.begin(), claims.end(), 1) == items);
      }
    }
  }
}

TEST_CASE("no rows and no outputs are nothing to do") {
  std::vector<KernelPath> paths = LinearPaths();
  ComputePool pool(2, 0);
  for (KernelPath& path : paths) path.kernels.linear->Run(LinearArgs{}, pool);
}

TEST_CASE("the self-test refuses kernels that sum in another order") {
  for (KernelPath& path : EmulatedPaths()) {
    INFO(path.name);
    REQUIRE(SelfTestLinear(*path.kernels.linear).ok());
  }
  LinearKernelSet set = KernelSetOf(Isa::kAvx2);
  set.bf16 = {&kWrongOrder};
  const absl::Status status = SelfTestLinear(*MakeLinearKernelsOf(Isa::kAvx512Bf16, set));
  REQUIRE(!status.ok());
  REQUIRE(std::string(status.message()).find("avx512bf16") != std::string::npos);
}

TEST_CASE("every table of kernels stays within the memory that it asks for") {
  uint32_t seed = 600;
  for (const WeightFormat& format : kAllFormats) {
    for (const LinearKernelSet& set : LinearSets()) {
      const LinearKernelSet::Tables& tables = TablesOf(set, format);
      for (size_t form = 0; form < tables.size(); ++form) {
        if (tables[form] == nullptr) continue;
        for (const auto& [rows, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 16, 32},
                                         {5, 300, 200},
                                         {33, 90, 1100},
                                         {130, 275, 700}}) {
          Shape shape;
          shape.format = format;
          shape.rows = std::min(rows, tables[form]->max_rows);
          shape.n = seed % 2 == 0 ? n : RoundUp(n, 32);
          shape.k = k;
          shape.epilogue = seed % 2 == 0 ? Epilogue::kBf16 : Epilogue::kSwiGlu;
          shape.whole_lines = true;
          LinearProblem problem(shape, Values::kNormal, ++seed);
          INFO(format.Name() << " form " << form << " rows " << shape.rows << " n " << shape.n
                             << " k " << k);
          REQUIRE((problem.RunTable(*tables[form], 1 + seed % 3) == problem.Expected()));
        }
      }
    }
  }
}

TEST_CASE("one place says which kernels serve how many rows") {
  using enum LinearForm;
  const auto form = [](const WeightFormat& format, int64_t rows) {
    return LinearFormOf(Isa::kAmx, format, rows, 2048);
  };
  REQUIRE((form(kBf16, 1) == kVectors && form(kBf16, 2) == kTileStream));
  REQUIRE((form(kBf16, 48) == kTileStream && form(kBf16, 49) == kRowsInL2));
  REQUIRE((form(kBf16, 256) == kRowsInL2 && form(kBf16, 257) == kWeightsInL2));
  REQUIRE((form(kInt8, 8) == kVectors && form(kInt8, 9) == kTileStream));
  REQUIRE((form(kInt8, 49) == kRowsInL2 && form(kInt8, 512) == kRowsInL2));
  REQUIRE((form(kInt4g128, 1) == kVectors && form(kInt4g128, 2) == kTileStream));
  REQUIRE((form(kInt4g128, 32) == kTileStream && form(kInt4g128, 33) == kRowsInL2));
  REQUIRE((form(kInt4g32, 256) == kRowsInL2 && form(kInt4g32, 512) == kWeightsInL2));
  REQUIRE(LinearFormOf(Isa::kAmx, kInt8, 512, 8192) == kWeightsInL2);
  REQUIRE(LinearFormOf(Isa::kAmx, kInt8, 4, 768) == kVectors);
  REQUIRE(LinearFormOf(Isa::kAmx, kInt8, 5, 768) == kTileStream);
  for (const WeightFormat& format : kAllFormats) {
    for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
      const LinearKernelSet set = KernelSetOf(isa);
      const LinearKernelSet::Tables& tables = TablesOf(set, format);
      for (const int64_t k : {64, 2048, 100'000}) {
        for (int64_t rows = 1; rows <= 600; ++rows) {
          const LinearForm chosen = LinearFormOf(isa, format, rows, k);
          INFO(IsaName(isa) << " " << format.Name() << " rows " << rows << " k " << k << ": "
                            << LinearFormName(chosen));
          REQUIRE(tables[static_cast<size_t>(chosen)] != nullptr);
          REQUIRE((isa == Isa::kAmx || chosen == kVectors));
        }
      }
    }
  }
}

TEST_CASE("a path this machine lacks is an error that names those it has") {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    const auto kernels = MakeLinearKernels(isa);
    REQUIRE(kernels.ok() == MachineHas(isa));
    if (kernels.ok()) {
      REQUIRE((*kernels)->isa() == isa);
      continue;
    }
    const std::string message(kernels.status().message());
    REQUIRE(message.find(IsaName(isa)) != std::string::npos);
    for (const Isa other : SupportedIsas()) {
      REQUIRE(message.find(IsaName(other)) != std::string::npos);
    }
  }
}

TEST_CASE("names of paths") {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    const auto parsed = ParseIsa(IsaName(isa));
    REQUIRE(parsed.ok());
    REQUIRE(*parsed == isa);
  }
  const auto unknown = ParseIsa("sse2");
  REQUIRE(!unknown.ok());
  for (const char* name : {"sse2", "avx2", "avx512", "avx512bf16", "amx"}) {
    REQUIRE(std::string(unknown.status().message()).find(name) != std::string::npos);
  }
}

TEST_CASE("the fastest path is one of this machine's") {
  ComputePool pool(2, 20);
  const auto kernels = MakeFastestLinearKernels(pool);
  REQUIRE(kernels.ok());
  REQUIRE(MachineHas((*kernels)->isa()));
}

}  // namespace
}  // namespace baton
