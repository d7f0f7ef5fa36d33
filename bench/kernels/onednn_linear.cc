#include "bench/kernels/onednn_linear.h"

#include <algorithm>
#include <cmath>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <unordered_map>
#include <vector>

#include "engine/numerics/bf16.h"

namespace baton {

namespace {

using dnnl::memory;

// Returns element i of a tensor of bf16 or bytes.
double ValueAt(const memory& tensor, int64_t i) {
  const void* data = tensor.get_data_handle();
  switch (tensor.get_desc().data_type()) {
    case memory::data_type::bf16:
      return Bf16ToFloat(static_cast<const bf16*>(data)[i]);
    case memory::data_type::u8:
      return static_cast<const uint8_t*>(data)[i];
    case memory::data_type::s8:
      return static_cast<const int8_t*>(data)[i];
    default:
      return static_cast<const float*>(data)[i];
  }
}

void FillRandom(memory& tensor, int64_t n, std::mt19937& random) {
  void* data = tensor.get_data_handle();
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < n; ++i) {
    if (tensor.get_desc().data_type() == memory::data_type::bf16)
      static_cast<bf16*>(data)[i] = FloatToBf16(normal(random));
    else
      static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(random());
  }
}

}  // namespace

struct OneDnnLinear::Primitive {
  Primitive(OneDnnType type, int64_t row_count, int64_t inputs, int64_t outputs, int copies)
      : rows(row_count), k(inputs), n(outputs), engine(dnnl::engine::kind::cpu, 0), stream(engine) {
    const bool is_bf16 = type == OneDnnType::kBf16;
    const auto x_type = is_bf16 ? memory::data_type::bf16 : memory::data_type::u8;
    const auto w_type = is_bf16 ? memory::data_type::bf16 : memory::data_type::s8;
    const memory::desc x_desc({rows, k}, x_type, memory::format_tag::ab);
    const memory::desc any({k, n}, w_type, memory::format_tag::any);
    const memory::desc y_desc({rows, n}, memory::data_type::f32, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc description({x_desc, any, y_desc}, engine);
    matmul = dnnl::matmul(description);
    x = memory(x_desc, engine);
    y = memory(y_desc, engine);
    std::mt19937 random(1);
    FillRandom(x, rows * k, random);
    // A row-major (n, k) matrix as in checkpoints, laid out once.
    plain = memory({{k, n}, w_type, memory::format_tag::ba}, engine);
    FillRandom(plain, n * k, random);
    for (int copy = 0; copy < copies; ++copy) {
      weights.emplace_back(description.weights_desc(), engine);
      dnnl::reorder(plain, weights.back()).execute(stream, plain, weights.back());
    }
    stream.wait();
  }

  int64_t rows, k, n;
  dnnl::engine engine;
  dnnl::stream stream;
  dnnl::matmul matmul;
  memory x, y, plain;
  std::vector<memory> weights;
  size_t next = 0;
};

OneDnnLinear::OneDnnLinear(OneDnnType type, int64_t rows, int64_t k, int64_t n, int copies)
    : primitive_(std::make_unique<Primitive>(type, rows, k, n, copies)) {}
OneDnnLinear::~OneDnnLinear() = default;

void OneDnnLinear::Run() {
  Primitive& p = *primitive_;
  p.matmul.execute(p.stream, {{DNNL_ARG_SRC, p.x},
                              {DNNL_ARG_WEIGHTS, p.weights[p.next++ % p.weights.size()]},
                              {DNNL_ARG_DST, p.y}});
  p.stream.wait();
}

int64_t OneDnnLinear::weight_bytes() const {
  return static_cast<int64_t>(primitive_->weights.front().get_desc().get_size());
}

double OneDnnLinear::WorstError() const {
  const Primitive& p = *primitive_;
  double worst = 0;
  for (int64_t r = 0; r < p.rows; r += std::max<int64_t>(1, p.rows / 4)) {
    for (int64_t o = 0; o < p.n; o += std::max<int64_t>(1, p.n / 4)) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < p.k; ++i) {
        const double product = ValueAt(p.x, r * p.k + i) * ValueAt(p.plain, o * p.k + i);
        sum += product;
        size += product * product;
      }
      worst = std::max(worst, std::abs(ValueAt(p.y, r * p.n + o) - sum) / std::sqrt(size));
    }
  }
  return worst;
}

}  // namespace baton
