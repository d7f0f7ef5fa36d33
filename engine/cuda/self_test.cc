#include "engine/cuda/self_test.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/cuda/attention.h"
#include "engine/cuda/block_view.h"
#include "engine/cuda/gemm.h"
#include "engine/cuda/gpu_error.h"

namespace baton {
namespace {

// One of each kind of tile, and more than one of the largest.
constexpr int kRows[] = {1, 8, 16, 24, 48, 96, 300};
constexpr int kMaxRows = 300;
constexpr int kMaxColumns = 8192;  // of a weight's outputs
// A chunk over earlier keys: two segments of the attention and a part.
constexpr int kPast = 1100, kChunk = 70;

class Stream {
 public:
  Stream() : error_(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)) {}
  ~Stream() {
    for (void* const memory : memory_) cudaFree(memory);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaError_t error() const { return error_; }
  operator cudaStream_t() const { return stream_; }

  template <typename T>
  cudaError_t Allocate(int64_t n, T** to) {
    void* made = nullptr;
    RETURN_IF_GPU_ERROR(cudaMalloc(&made, static_cast<size_t>(n) * sizeof(T)));
    memory_.push_back(made);
    *to = static_cast<T*>(made);
    return cudaSuccess;
  }
  template <typename T>
  cudaError_t Upload(const std::vector<T>& values, T** to) {
    RETURN_IF_GPU_ERROR(Allocate(static_cast<int64_t>(values.size()), to));
    RETURN_IF_GPU_ERROR(cudaMemcpyAsync(*to, values.data(), values.size() * sizeof(T),
                                        cudaMemcpyHostToDevice, stream_));
    return cudaStreamSynchronize(stream_);
  }
  template <typename T>
  cudaError_t Download(const T* from, std::vector<T>* values) {
    RETURN_IF_GPU_ERROR(cudaMemcpyAsync(values->data(), from, values->size() * sizeof(T),
                                        cudaMemcpyDeviceToHost, stream_));
    return cudaStreamSynchronize(stream_);
  }

 private:
  cudaStream_t stream_ = nullptr;
  const cudaError_t error_;
  std::vector<void*> memory_;
};

// Numbers around 0 in bf16, of which none is denormal.
std::vector<uint16_t> RandomRows(int64_t n, uint32_t seed) {
  std::vector<uint16_t> values(static_cast<size_t>(n));
  for (uint16_t& value : values) {
    seed = seed * 1664525u + 1013904223u;
    const uint32_t exponent = 127 - 4 + (seed >> 28) % 6;
    value = static_cast<uint16_t>((seed >> 8 & 0x8000u) | exponent << 7 | (seed >> 16 & 0x7fu));
  }
  return values;
}

struct Weights {
  const char* name;
  const uint16_t* data;
  int n, k;
  GemmEnd end;
};

// Compares the model's end of a product, by the kernels that are chosen and by the reference.
cudaError_t TestProduct(const Weights& weights, std::string* fault) {
  const int n = std::min(weights.n, kMaxColumns);
  const bool is_fp32 = IsFp32(weights.end);
  const int width = IsGated(weights.end) ? n / 2 : n;
  const int64_t row_bytes = width * int64_t{is_fp32 ? 4 : 2};
  Stream stream;
  RETURN_IF_GPU_ERROR(stream.error());
  uint16_t* a = nullptr;
  uint8_t *fast = nullptr, *reference = nullptr;
  RETURN_IF_GPU_ERROR(stream.Upload(RandomRows(int64_t{kMaxRows} * weights.k, 7), &a));
  RETURN_IF_GPU_ERROR(stream.Allocate(kMaxRows * row_bytes, &fast));
  RETURN_IF_GPU_ERROR(stream.Allocate(kMaxRows * row_bytes, &reference));
  // The addend of kAdd, and what must be written over.
  const std::vector<uint16_t> before = RandomRows(kMaxRows * row_bytes / 2, 11);
  const auto fill = [&](uint8_t* to) {
    return cudaMemcpyAsync(to, before.data(), static_cast<size_t>(kMaxRows * row_bytes),
                           cudaMemcpyHostToDevice, stream);
  };
  const auto output = [&](uint8_t* to) {
    GemmOutput made;
    made.end = weights.end;
    made.fp32 = is_fp32 ? reinterpret_cast<float*>(to) : nullptr;
    made.bf16 = is_fp32 ? nullptr : reinterpret_cast<uint16_t*>(to);
    made.stride = width;
    return made;
  };
  std::vector<uint8_t> expected(static_cast<size_t>(kMaxRows * row_bytes));
  RETURN_IF_GPU_ERROR(fill(reference));
  RETURN_IF_GPU_ERROR(
      GemmByMma(a, weights.k, weights.data, output(reference), {kMaxRows, n, weights.k}, stream));
  RETURN_IF_GPU_ERROR(stream.Download(reference, &expected));
  for (const int m : kRows) {
    std::vector<uint8_t> computed(static_cast<size_t>(m * row_bytes));
    RETURN_IF_GPU_ERROR(fill(fast));
    RETURN_IF_GPU_ERROR(
        Multiply(a, weights.k, weights.data, output(fast), {m, n, weights.k}, stream));
    RETURN_IF_GPU_ERROR(stream.Download(fast, &computed));
    if (std::memcmp(computed.data(), expected.data(), computed.size()) == 0) continue;
    *fault = std::string("the product with ") + weights.name + " of " + std::to_string(m) +
             " rows has other bits than that of mma.sync";
    return cudaSuccess;
  }
  return cudaSuccess;
}

// The block of `n` rows behind each other: one piece, or a piece for each row.
std::vector<int32_t> BlockOf(int first, int n, int n_pages, bool is_one_piece) {
  std::vector<int32_t> tokens(static_cast<size_t>(n), 0), positions, ends{0}, page_ends{0}, pages;
  for (int i = 0; i < n; ++i) positions.push_back(first + i);
  for (int piece = 0; piece < (is_one_piece ? 1 : n); ++piece) {
    ends.push_back(is_one_piece ? n : piece + 1);
    for (int page = 0; page < n_pages; ++page) pages.push_back(n_pages - 1 - page);
    page_ends.push_back(static_cast<int32_t>(pages.size()));
  }
  const auto n_pieces = static_cast<int32_t>(ends.size()) - 1;
  std::vector<int32_t> block = {n, n_pieces, static_cast<int32_t>(pages.size()), 0, 0, 0};
  for (const auto* part : {&tokens, &positions, &ends, &page_ends, &pages})
    block.insert(block.end(), part->begin(), part->end());
  block.insert(block.end(), static_cast<size_t>(n_pieces), 0);
  return block;
}

cudaError_t TestAttention(const ModelView& view, std::string* fault) {
  const AttentionShape shape{view.n_heads, view.n_kv_heads, view.row(), 0, view.score_scale};
  const int n_pages = (kPast + kChunk + view.page_tokens - 1) / view.page_tokens;
  const int64_t page_values = int64_t{2} * view.n_kv_heads * view.page_tokens * view.row();
  const int64_t width = int64_t{view.n_heads} * view.row();
  Stream stream;
  RETURN_IF_GPU_ERROR(stream.error());
  uint16_t *kv = nullptr, *q = nullptr, *out = nullptr;
  uint8_t* memory = nullptr;
  RETURN_IF_GPU_ERROR(stream.Upload(RandomRows(n_pages * page_values, 3), &kv));
  RETURN_IF_GPU_ERROR(stream.Upload(RandomRows(kChunk * width, 5), &q));
  RETURN_IF_GPU_ERROR(stream.Allocate(kChunk * width, &out));
  AttentionWork work{nullptr, AttentionWorkBytes(kChunk, shape), kChunk};
  RETURN_IF_GPU_ERROR(stream.Allocate(work.bytes, &memory));
  work.memory = memory;
  const KvPlaneView plane{reinterpret_cast<uint8_t*>(kv), page_values * 2, view.page_tokens};
  // A chunk by mma.sync, the reference; by warpgroups; its rows one by one; its last row alone,
  // whose keys are shared out to several blocks.
  struct Case {
    int first, n;
    bool is_one_piece;
    ChunkKernel kernel = ChunkKernel::kWarpgroups;
  };
  std::vector<uint16_t> chunk;
  for (const Case each : {Case{0, kChunk, true, ChunkKernel::kMma}, Case{0, kChunk, true},
                          Case{0, kChunk, false}, Case{kChunk - 1, 1, true}}) {
    int32_t* block = nullptr;
    RETURN_IF_GPU_ERROR(
        stream.Upload(BlockOf(kPast + each.first, each.n, n_pages, each.is_one_piece), &block));
    const bool only_rows = !each.is_one_piece || each.n == 1;
    const AttentionRange all{0, each.n, only_rows ? each.n : 1, only_rows};
    std::vector<uint16_t> result(static_cast<size_t>(each.n * width));
    RETURN_IF_GPU_ERROR(PrepareAttention(block, all, shape, work, stream));
    RETURN_IF_GPU_ERROR(cudaMemsetAsync(out, 0xff, result.size() * sizeof(uint16_t), stream));
    RETURN_IF_GPU_ERROR(
        Attend(block, all, q + each.first * width, plane, shape, work, out, stream, each.kernel));
    RETURN_IF_GPU_ERROR(stream.Download(out, &result));
    if (chunk.empty()) chunk = result;
    if (std::memcmp(chunk.data() + each.first * width, result.data(),
                    result.size() * sizeof(uint16_t)) == 0) {
      continue;
    }
    *fault = std::string("the attention of ") +
             (only_rows ? std::to_string(each.n) + " rows alone" : "a chunk by warpgroups") +
             " has other bits than that of the chunk by mma.sync";
    return cudaSuccess;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t TestKernels(const ModelView& view, std::string* fault) {
  fault->clear();
  const LayerView& layer = view.layers[0];
  const int hidden = view.hidden_stride();
  const Weights all[] = {
      {"q, k and v", layer.qkv, view.qkv_width(), hidden, GemmEnd::kBf16},
      {"o", layer.o, view.hidden, view.n_heads * view.row(), GemmEnd::kAdd},
      {"gate and up", layer.gate_up, view.gate_up_width(), hidden, view.gate_up_end()},
      {"down", layer.down, view.hidden, view.mlp_stride(), GemmEnd::kAdd},
      {"the head", view.lm_head, view.vocab, hidden, GemmEnd::kFp32}};
  for (const Weights& weights : all) {
    RETURN_IF_GPU_ERROR(TestProduct(weights, fault));
    if (!fault->empty()) return cudaSuccess;
  }
  return TestAttention(view, fault);
}

}  // namespace baton
