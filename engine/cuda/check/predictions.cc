#include "engine/cuda/check/predictions.h"

#include <cinttypes>
#include <cstdio>
#include <istream>

#include "engine/numerics/tensor_core_dot.h"

namespace baton {
namespace {

struct Shape {
  int m, n, k;
};

// Edges of tiles, one row, more columns than rows and the reverse, and K up to the widest hidden
// size of the models that GPUs serve first.
constexpr Shape kShapes[] = {{1, 8, 64},    {1, 1, 128},  {3, 24, 192},  {17, 40, 256},
                             {64, 64, 512}, {65, 9, 576}, {129, 7, 128}, {2, 257, 64},
                             {1, 16, 4096}, {5, 3, 14336}};

std::vector<bf16> Rows(const Prediction& shape, uint32_t id, int n_rows) {
  std::vector<bf16> rows;
  rows.reserve(static_cast<size_t>(n_rows) * shape.k);
  for (int row = 0; row < n_rows; ++row)
    for (int column = 0; column < shape.k; ++column)
      rows.push_back(InputAt(shape.distribution, shape.seed, id, row, column, shape.k));
  return rows;
}

}  // namespace

uint64_t DigestOf(std::span<const uint32_t> bits) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint32_t value : bits)
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ (value >> shift & 0xffu)) * 0x100000001b3u;
  return hash;
}

std::vector<uint32_t> PredictedProduct(const Prediction& shape) {
  const std::vector<bf16> a = Rows(shape, 1, shape.m), b = Rows(shape, 2, shape.n);
  std::vector<uint32_t> product;
  product.reserve(static_cast<size_t>(shape.m) * shape.n);
  for (int row = 0; row < shape.m; ++row)
    for (int column = 0; column < shape.n; ++column)
      product.push_back(TensorCoreDot(&a[static_cast<size_t>(row) * shape.k],
                                      &b[static_cast<size_t>(column) * shape.k], shape.k));
  return product;
}

std::vector<Prediction> AllPredictions() {
  std::vector<Prediction> predictions;
  uint32_t seed = 1;
  for (int distribution = 0; distribution < kDistributions; ++distribution) {
    for (const Shape& shape : kShapes) {
      Prediction prediction{static_cast<Distribution>(distribution), seed++, shape.m, shape.n,
                            shape.k};
      prediction.digest = DigestOf(PredictedProduct(prediction));
      predictions.push_back(prediction);
    }
  }
  return predictions;
}

std::string LineOf(const Prediction& prediction) {
  char line[128];
  std::snprintf(line, sizeof line, "%s %" PRIu32 " %d %d %d %016" PRIx64,
                NameOf(prediction.distribution), prediction.seed, prediction.m, prediction.n,
                prediction.k, prediction.digest);
  return line;
}

std::vector<Prediction> ReadPredictions(std::istream& file) {
  std::vector<Prediction> predictions;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    Prediction read;
    char name[16];
    if (std::sscanf(line.c_str(), "%15s %" SCNu32 " %d %d %d %" SCNx64, name, &read.seed, &read.m,
                    &read.n, &read.k, &read.digest) != 6)
      return {};
    bool is_known = false;
    for (int i = 0; i < kDistributions; ++i) {
      if (std::string(name) != NameOf(static_cast<Distribution>(i))) continue;
      read.distribution = static_cast<Distribution>(i);
      is_known = true;
    }
    if (!is_known || LineOf(read) != line) return {};
    predictions.push_back(read);
  }
  return predictions;
}

}  // namespace baton
