// Sparse layers against a scalar definition, row by row: the experts, the weights and the output,
// independent of the other rows of the step.
#include "engine/cpu/experts.h"
#include "engine/load_backend.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "engine/cpu/linear/linear_reference.h"
#include "engine/cpu/machine/aligned_buffer.h"
#include "engine/numerics/exp2.h"
#include "engine/numerics/fold.h"
#include "engine/threads/mxcsr.h"
#include "tests/engine/checkpoint/checkpoint_writer.h"
#include "tests/engine/cpu/kernel_paths.h"
#include "tests/engine/sequence_runner.h"

namespace baton {
namespace {

constexpr int kMaxRows = 64;

// Random weights of one sparse layer.
class Layer {
 public:
  Layer(const ExpertsDesc& desc_in, int hidden_in, uint32_t seed)
      : desc(desc_in), hidden(hidden_in), random_(seed) {
    weights.router = Matrix(desc.n + (desc.shared_gate ? 1 : 0), hidden, 2.0);
    for (int i = 0; i < desc.n; ++i) weights.experts.push_back(Mlp(desc.intermediate));
    if (desc.shared_intermediate > 0) weights.shared = Mlp(desc.shared_intermediate);
    std::normal_distribution<float> small(0, 0.2f);
    for (int i = 0; desc.corrected && i < desc.n; ++i) corrections_.push_back(small(random_));
    if (desc.corrected) weights.corrections = corrections_.data();
  }

  // (rows, stride) of normal numbers, zeros from `hidden` on.
  std::vector<bf16> Rows(int rows) {
    std::vector<bf16> x(static_cast<size_t>(rows * stride()));
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < hidden; ++i) x[row * stride() + i] = Normal(1);
    }
    return x;
  }
  int64_t stride() const { return RoundUp(hidden, 32); }

  ExpertsDesc desc;
  int hidden;
  ExpertsWeights weights;

 private:
  bf16 Normal(double scale) {
    return FloatToBf16(static_cast<float>(scale * std::normal_distribution<double>()(random_)));
  }
  PackedWeights Matrix(int64_t n, int64_t k, double scale) {
    std::vector<bf16> rows(static_cast<size_t>(n * k));
    for (bf16& w : rows) w = Normal(scale / std::sqrt(static_cast<double>(k)));
    memory_.push_back(std::make_unique<AlignedBuffer>());
    bf16* packed = static_cast<bf16*>(
        memory_.back()->Reserve(static_cast<size_t>(PackedWeights::Bytes(n, k))));
    for (int64_t block = 0; block < RoundUp(n, 16) / 16; ++block) {
      PackBlock(rows.data(), n, k, block, packed);
    }
    return {packed, n, k};
  }
  ExpertWeights Mlp(int width) {
    return {Matrix(2 * RoundUp(width, 16), hidden, 1), Matrix(hidden, width, 1)};
  }

  std::mt19937 random_;
  std::vector<float> corrections_;
  std::vector<std::unique_ptr<AlignedBuffer>> memory_;
};

// Returns the output of Experts::Run for `rows` rows of x, or of their norms. y starts as `before`,
// if present, and Run adds to it.
std::vector<bf16> Compute(const Layer& layer, std::vector<bf16> x, int rows,
                          const std::vector<bf16>& before, LinearKernels& linear, ComputePool& pool,
                          const RowNorm& norm = {}) {
  Arena arena;
  Experts experts(layer.desc, layer.hidden, kMaxRows, arena);
  REQUIRE(arena.Map());
  experts.Reserve(layer.weights, linear, pool);
  std::vector<bf16> y = before;
  y.resize(static_cast<size_t>(rows * layer.stride()));
  experts.Run(layer.weights, {x.data(), layer.stride()}, norm, rows, !before.empty(),
              {y.data(), layer.stride()}, linear, pool);
  return y;
}

// ---- the definition ----

std::vector<float> LinearOf(const bf16* x, const PackedWeights& w, Epilogue epilogue) {
  std::vector<float> fp32(static_cast<size_t>(w.n));
  std::vector<bf16> y(static_cast<size_t>(w.n));
  LinearJob job;
  job.x = x;
  job.rows = 1;
  job.weights = w.data;
  job.n = w.n;
  job.n_blocks = w.n_padded() / 16;
  job.k_padded = w.k_padded();
  job.epilogue = epilogue;
  job.y = y.data();
  job.y_fp32 = fp32.data();
  RunLinearReference(job);
  if (epilogue != Epilogue::kFp32) std::transform(y.begin(), y.end(), fp32.begin(), Bf16ToFloat);
  return fp32;
}

std::vector<float> MlpOf(const bf16* x, const ExpertWeights& expert) {
  const std::vector<float> inner = LinearOf(x, expert.gate_up, Epilogue::kSwiGlu);
  std::vector<bf16> rounded(static_cast<size_t>(expert.down.k_padded()));
  for (int64_t i = 0; i < expert.down.k; ++i) rounded[i] = FloatToBf16(inner[i]);
  return LinearOf(rounded.data(), expert.down, Epilogue::kBf16);
}

float Power(float x) { return Exp2(Mul(x, 0x1.715476p0f)); }

float Sigmoid(float x) { return 1 / (1 + Power(-x)); }

// Returns the indices of the k max values, the max first.
std::vector<int> Greatest(const std::vector<float>& keys, int k) {
  std::vector<int> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] > keys[b]; });
  order.resize(k);
  return order;
}

// Returns (expert, weight) by ascending expert, for sigmoid scores.
std::vector<std::pair<int, float>> SigmoidRoutes(const float* logits, const ExpertsDesc& desc,
                                                 std::vector<int> order) {
  std::sort(order.begin(), order.end());
  float sum = 0;
  for (const int expert : order) sum += Sigmoid(logits[expert]);
  std::vector<std::pair<int, float>> routes;
  for (const int expert : order) {
    const float weight = Sigmoid(logits[expert]);
    routes.emplace_back(expert, (desc.normalised ? weight / (sum + 1e-20f) : weight) *
                                    static_cast<float>(desc.scale));
  }
  return routes;
}

// Returns (expert, weight) by ascending expert. corrections: null: none.
std::vector<std::pair<int, float>> RoutesOf(const float* logits, const float* corrections,
                                            const ExpertsDesc& desc) {
  std::vector<float> keys(logits, logits + desc.n);
  for (int e = 0; e < desc.n; ++e) {
    if (desc.sigmoid) keys[e] = Sigmoid(keys[e]);
    if (corrections != nullptr) keys[e] += corrections[e];
  }
  std::vector<float> scores;  // per group
  const int size = desc.n / desc.groups;
  for (int first = 0; first < desc.n; first += size) {
    std::vector<float> group(keys.begin() + first, keys.begin() + first + size);
    std::sort(group.begin(), group.end(), std::greater<>());
    scores.push_back(std::accumulate(group.begin(), group.begin() + desc.group_terms, 0.0f));
  }
  std::vector<float> allowed(desc.n, -std::numeric_limits<float>::infinity());
  for (const int group : Greatest(scores, desc.chosen_groups)) {
    std::copy_n(keys.begin() + group * size, size, allowed.begin() + group * size);
  }
  std::vector<int> order = Greatest(allowed, desc.per_token);
  if (desc.sigmoid) return SigmoidRoutes(logits, desc, order);
  const float greatest = logits[order[0]];
  std::sort(order.begin(), order.end());
  float sum = 0;
  if (desc.normalised) {
    for (const int expert : order) sum += Power(logits[expert] - greatest);
  } else {
    float lanes[kLanes] = {};
    for (int e = 0; e < desc.n; ++e) lanes[e % kLanes] += Power(logits[e] - greatest);
    sum = FoldSum(lanes);
  }
  std::vector<std::pair<int, float>> routes;
  for (const int expert : order) {
    routes.emplace_back(expert,
                        Power(logits[expert] - greatest) / sum * static_cast<float>(desc.scale));
  }
  return routes;
}

// Returns one row's output, added to `before` if present.
std::vector<bf16> Expected(const Layer& layer, const bf16* x, const bf16* before) {
  const NumericsMxcsrScope scope;
  const std::vector<float> logits = LinearOf(x, layer.weights.router, Epilogue::kFp32);
  std::vector<float> sum(static_cast<size_t>(layer.hidden));
  const auto add = [&](float weight, const ExpertWeights& expert) {
    const std::vector<float> out = MlpOf(x, expert);
    for (int i = 0; i < layer.hidden; ++i) sum[i] = Fma(weight, out[i], sum[i]);
  };
  for (const auto& [expert, weight] :
       RoutesOf(logits.data(), layer.weights.corrections, layer.desc)) {
    add(weight, layer.weights.experts[expert]);
  }
  if (layer.desc.shared_intermediate > 0) {
    const float gate = layer.desc.shared_gate ? 1 / (1 + Power(-logits[layer.desc.n])) : 1.0f;
    add(gate, layer.weights.shared);
  }
  std::vector<bf16> y(static_cast<size_t>(layer.hidden));
  for (int i = 0; i < layer.hidden; ++i) {
    y[i] = FloatToBf16(sum[i]);
    if (before != nullptr) y[i] = FloatToBf16(Bf16ToFloat(before[i]) + Bf16ToFloat(y[i]));
  }
  return y;
}

ExpertsDesc Desc(int n, int per_token, int intermediate) {
  ExpertsDesc desc;
  desc.n = n;
  desc.per_token = per_token;
  desc.intermediate = intermediate;
  return desc;
}

std::vector<ExpertsDesc> Descs() {
  std::vector<ExpertsDesc> descs = {Desc(1, 1, 40),  Desc(8, 2, 48),  Desc(19, 4, 16),
                                    Desc(5, 5, 7),   Desc(40, 3, 33), Desc(64, 6, 32),
                                    Desc(24, 4, 16), Desc(32, 5, 16), Desc(12, 3, 16)};
  descs[1].normalised = descs[4].normalised = true;
  descs[2].scale = 2.5;
  descs[3].shared_intermediate = 50;
  descs[4].shared_intermediate = 24;
  descs[4].shared_gate = true;
  descs[5].shared_intermediate = 64;
  descs[5].scale = 0.7;
  const auto group = [&](ExpertsDesc& desc, int groups, int chosen, int terms) {
    desc.groups = groups;
    desc.chosen_groups = chosen;
    desc.group_terms = terms;
    desc.sigmoid = desc.corrected = desc.normalised = terms == 2;
    desc.scale = 2.5;
  };
  group(descs[6], 8, 3, 1);  // DeepSeek-V2
  group(descs[7], 4, 2, 2);  // V3
  group(descs[8], 1, 1, 2);
  descs[8].normalised = false;
  return descs;
}

}  // namespace

TEST_CASE("every row's output is the scalar definition's, on every path") {
  const std::vector<KernelPath> paths = KernelPaths();
  ComputePool pool(2, 0);
  uint32_t seed = 0;
  for (const ExpertsDesc& desc : Descs()) {
    Layer layer(desc, 72, ++seed);
    for (const int rows : {1, 3, 33}) {
      const std::vector<bf16> x = layer.Rows(rows), residual = layer.Rows(rows);
      for (const KernelPath& path : paths) {
        INFO(desc.n << " experts, " << rows << " rows, " << path.name);
        const std::vector<bf16> y = Compute(layer, x, rows, {}, *path.kernels.linear, pool);
        const std::vector<bf16> added =
            Compute(layer, x, rows, residual, *path.kernels.linear, pool);
        for (int row = 0; row < rows; ++row) {
          const int64_t at = row * layer.stride();
          const std::vector<bf16> expected = Expected(layer, &x[at], nullptr);
          REQUIRE(std::equal(expected.begin(), expected.end(), y.begin() + at));
          const std::vector<bf16> sum = Expected(layer, &x[at], &residual[at]);
          REQUIRE(std::equal(sum.begin(), sum.end(), added.begin() + at));
        }
      }
    }
  }
}

TEST_CASE("a row's bits do not depend on where other rows go") {
  const std::vector<KernelPath> paths = KernelPaths();
  ComputePool one(1, 0), two(2, 0), three(3, 20);
  ComputePool* const pools[] = {&one, &two, &three};
  const uint32_t seed = static_cast<uint32_t>(std::random_device()());
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const ExpertsDesc& desc : Descs()) {
    Layer layer(desc, 96, static_cast<uint32_t>(random()));
    const std::vector<bf16> row = layer.Rows(1);
    const std::vector<bf16> alone = Compute(layer, row, 1, {}, *paths[0].kernels.linear, one);
    for (int round = 0; round < 30; ++round) {
      const int rows = 1 + static_cast<int>(random() % kMaxRows);
      const int place = static_cast<int>(random() % rows);
      std::vector<bf16> x = layer.Rows(rows);
      // Some neighbours are equal, so that one expert gets many rows.
      if (round % 3 == 0) {
        for (int i = 1; i < rows; ++i) {
          std::copy_n(x.begin(), layer.stride(), x.begin() + i * layer.stride());
        }
      }
      std::copy(row.begin(), row.end(), x.begin() + place * layer.stride());
      LinearKernels& linear = *paths[random() % paths.size()].kernels.linear;
      const std::vector<bf16> y = Compute(layer, x, rows, {}, linear, *pools[random() % 3]);
      INFO(desc.n << " experts, row " << place << " of " << rows);
      REQUIRE(std::equal(alone.begin(), alone.end(), y.begin() + place * layer.stride()));
    }
  }
}

TEST_CASE("norms taken by router and experts give the bits of norms taken before") {
  const std::vector<KernelPath> paths = KernelPaths();
  ComputePool pool(2, 0);
  for (const ExpertsDesc& desc : Descs()) {
    Layer layer(desc, 72, 7);
    constexpr int kRows = 29;
    const std::vector<bf16> x = layer.Rows(kRows);
    std::vector<float> weight(72);
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.5f + static_cast<float>(i) / 50;
    for (const KernelPath& path : paths) {
      RowNorm norm;
      norm.apply = path.kernels.elementwise->apply_rms_norm;
      norm.weight = weight.data();
      norm.n = 72;
      norm.n_padded = 96;
      norm.eps = 1e-5f;
      std::vector<bf16> normed = x;
      {
        const NumericsMxcsrScope scope;
        for (int row = 0; row < kRows; ++row) {
          norm.apply(norm, &x[row * layer.stride()], &normed[row * layer.stride()]);
        }
      }
      INFO(desc.n << " experts, " << path.name);
      REQUIRE(Compute(layer, x, kRows, x, *path.kernels.linear, pool, norm) ==
              Compute(layer, normed, kRows, x, *path.kernels.linear, pool));
    }
  }
}

TEST_CASE("a row of NaN stays alone with it") {
  const std::vector<KernelPath> paths = KernelPaths();
  ComputePool pool(2, 0);
  for (const ExpertsDesc& desc : Descs()) {
    Layer layer(desc, 64, 5);
    std::vector<bf16> x = layer.Rows(4);
    const std::vector<bf16> good = Compute(layer, x, 4, {}, *paths.back().kernels.linear, pool);
    std::fill_n(x.begin() + layer.stride(), layer.hidden, FloatToBf16(std::nanf("")));
    std::fill_n(x.begin() + 2 * layer.stride(), layer.hidden, bf16{0x7f80});  // infinity
    const std::vector<bf16> y = Compute(layer, x, 4, {}, *paths.back().kernels.linear, pool);
    for (const int row : {0, 3}) {
      const auto at = row * layer.stride();
      REQUIRE(std::equal(good.begin() + at, good.begin() + at + layer.hidden, y.begin() + at));
    }
    REQUIRE(std::isnan(Bf16ToFloat(y[layer.stride()])));
  }
}

TEST_CASE("of equal logits the lowest expert is chosen") {
  const NumericsMxcsrScope scope;
  Route routes[3];
  const float equal[] = {1, 1, 1, 1, 1};
  RouteRow(equal, {.n_experts = 5, .per_token = 3, .normalised = true}, routes);
  for (int i = 0; i < 3; ++i) {
    CHECK(routes[i].expert == i);
    CHECK(routes[i].weight == 1.0f / 3.0f);
  }
  RouteRow(equal, {.n_experts = 5, .per_token = 3, .scale = 2}, routes);
  CHECK(routes[2].weight == 1.0f / 5.0f * 2.0f);
  const float mixed[] = {0, 3, -1, 3, 4, 3};  // 4 first, then 1 and 3, not 5
  RouteRow(mixed, {.n_experts = 6, .per_token = 3}, routes);
  CHECK((routes[0].expert == 1 && routes[1].expert == 3 && routes[2].expert == 4));
  CHECK(routes[0].weight == routes[1].weight);
  CHECK(routes[2].weight == Approx(std::exp(1.0) * routes[0].weight));
}

TEST_CASE("experts are chosen by corrected sigmoids, and weighed without the correction") {
  const NumericsMxcsrScope scope;
  Route routes[2];
  const float logits[] = {0, 1, 2, -1, 0.5f, 0.25f};
  const float corrections[] = {1, 0, 0, 0, 0, 0};
  RouterRule rule{.n_experts = 6, .per_token = 2, .sigmoid = true, .corrections = corrections};
  RouteRow(logits, rule, routes);
  CHECK((routes[0].expert == 0 && routes[1].expert == 2));
  CHECK(routes[0].weight == 0.5f);
  CHECK(routes[1].weight == Approx(1 / (1 + std::exp(-2.0))));
  rule.normalised = true;
  RouteRow(logits, rule, routes);
  CHECK(routes[0].weight + routes[1].weight == Approx(1));
  // Two of the sums 1.5 + .73, .88 + .27, .62 + .56: the first group and, by a small margin, the
  // last.
  rule.n_groups = 3;
  rule.chosen_groups = 2;
  rule.group_terms = 2;
  RouteRow(logits, rule, routes);
  CHECK((routes[0].expert == 0 && routes[1].expert == 1));
  // By the max alone: the first group and the second, whose 2 now counts.
  rule.group_terms = 1;
  RouteRow(logits, rule, routes);
  CHECK((routes[0].expert == 0 && routes[1].expert == 2));
  const float refused[] = {-200, -300, -200, -250, -1e30f, -200};  // all sigmoids are 0
  RouteRow(refused, rule, routes);
  CHECK((routes[0].weight == 0 && routes[1].weight == 0));
}

TEST_CASE("NaN and infinite logits choose experts that exist, each once") {
  const NumericsMxcsrScope scope;
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const float values[] = {nan, infinity, -infinity, 0, 1, 0.5f};
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    float logits[7];
    for (float& logit : logits) logit = values[random() % 5];
    const int per_token = 1 + static_cast<int>(random() % 7);
    Route routes[7];
    RouteRow(logits, {.n_experts = 7, .per_token = per_token, .normalised = round % 2 == 0},
             routes);
    const auto check = [&](int n) {
      for (int i = 0; i < n; ++i) {
        REQUIRE((routes[i].expert >= 0 && routes[i].expert < 7));
        if (i > 0) REQUIRE(routes[i].expert > routes[i - 1].expert);
      }
    };
    check(per_token);
    RouteRow(logits,
             {.n_experts = 6,
              .per_token = 2,
              .normalised = true,
              .sigmoid = true,
              .corrections = values,
              .n_groups = 3,
              .chosen_groups = 1 + round % 2,
              .group_terms = 2},
             routes);
    check(2);
  }
}

TEST_CASE("a checkpoint without one of the experts is an error that names the tensor") {
  const std::string config = std::string(BATON_SOURCE_DIR) + "/configs/shapes/tiny-moe.json";
  FileTensors tensors = RandomCheckpoint(config, 1);
  const auto error = [&] {
    const TempFolder folder;
    WriteCheckpoint(folder, ReadFileText(config), tensors);
    EngineOptions options;
    options.model = folder.path();
    return std::string(LoadBackend(options).status().message());
  };
  CHECK(error().empty());
  for (const std::string name : {"experts.15.up_proj", "experts.0.down_proj", "gate",
                                 "shared_expert.gate_proj", "shared_expert_gate"}) {
    auto removed = tensors.extract("model.layers.2.mlp." + name + ".weight");
    REQUIRE(!removed.empty());
    CHECK_THAT(error(), Catch::Matchers::Contains("tensor \"" + removed.key() + "\" is missing"));
    tensors[removed.key()] = removed.mapped();
  }
}

}  // namespace baton
