// S4: whole steps of models with random weights, as shares of what memory and matrix units can do,
// and how handoffs that copy beside them disturb them. Four layers' weights serve all layers in
// turn: far more than the cache holds, and quickly made.
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/check/check_kernels.h"
#include "engine/cuda/check/gpu.h"
#include "engine/cuda/check/parts.h"
#include "engine/cuda/sample.h"
#include "engine/cuda/step_model.h"

namespace baton {
namespace {

constexpr int kPageTokens = 64, kStepRows = 2048, kLayersMade = 4, kSteps = 12;
constexpr double kReadTerabytes = 4.49;  // of an H200, S0.memory

struct ModelShape {
  const char* name;
  int n_layers, hidden, n_heads, n_kv_heads, head_dim, intermediate, vocab;
  // Multiply-adds of a token in all linear layers, the head left out.
  double LayerWeights() const {
    const double width = (n_heads + 2.0 * n_kv_heads) * head_dim;
    return n_layers *
           (hidden * width + 1.0 * n_heads * head_dim * hidden + 3.0 * hidden * intermediate);
  }
  double TokenBytes() const { return 4.0 * n_layers * n_kv_heads * head_dim; }  // of KV
};
constexpr ModelShape k8B = {"8B", 32, 4096, 32, 8, 128, 14336, 128256};
constexpr ModelShape k1B = {"1B", 16, 2048, 32, 8, 64, 8192, 128256};

class RandomModel {
 public:
  RandomModel(const ModelShape& shape, const Stream& stream) : shape_(shape), stream_(stream) {
    const int width = (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim;
    std::vector<LayerView> made(kLayersMade);
    for (LayerView& layer : made) {
      layer.attention_norm.weight = layer.mlp_norm.weight = Ones(shape.hidden);
      layer.qkv = Weights(width, shape.hidden);
      layer.o = Weights(shape.hidden, shape.n_heads * shape.head_dim);
      layer.gate_up = Weights(2 * shape.intermediate, shape.hidden);
      layer.down = Weights(shape.hidden, shape.intermediate);
    }
    const int64_t plane = int64_t{4} * shape.n_kv_heads * kPageTokens * shape.head_dim;
    std::vector<LayerView> layers;
    for (int i = 0; i < shape.n_layers; ++i) {
      layers.push_back(made[static_cast<size_t>(i % kLayersMade)]);
      layers.back().plane_offset = i * plane;
    }
    view_.n_layers = shape.n_layers;
    view_.hidden = shape.hidden;
    view_.n_heads = shape.n_heads;
    view_.n_kv_heads = shape.n_kv_heads;
    view_.head_dim = view_.rotary_dim = shape.head_dim;
    view_.intermediate = shape.intermediate;
    view_.vocab = shape.vocab;
    view_.norm_eps = 1e-5f;
    view_.score_scale = 0.02f;  // random queries and keys are large
    view_.page_tokens = kPageTokens;
    view_.page_bytes = shape.n_layers * plane;
    view_.max_step_rows = kStepRows;
    view_.max_slice_rows = 64;
    view_.embedding = view_.lm_head = Weights(shape.vocab, shape.hidden);
    view_.final_norm.weight = Ones(shape.hidden);
    const float* const angles = Ones(int64_t{32768} * shape.head_dim / 2);
    for (RopeView& ropes : view_.ropes) ropes = {{angles, angles}, {angles, angles}};
    view_.layers = layers.data();
    GPU_CHECK(StepModel::Create(view_, &model_));
  }

  StepModel& model() { return *model_; }
  const ModelShape& shape() const { return shape_; }
  int64_t page_bytes() const { return view_.page_bytes; }

 private:
  const uint16_t* Weights(int n, int k) {
    matrices_.push_back(std::make_unique<GpuArray<uint16_t>>(int64_t{n} * k));
    const auto id = static_cast<uint32_t>(matrices_.size());
    GPU_CHECK(FillInputs(matrices_.back()->get(), {Distribution::kWeight, 21, id, n, k}, stream_));
    return matrices_.back()->get();
  }
  const float* Ones(int64_t n) {
    vectors_.push_back(std::make_unique<GpuArray<float>>(n));
    vectors_.back()->Write(std::vector<float>(static_cast<size_t>(n), 0.7071f));
    return vectors_.back()->get();
  }

  const ModelShape shape_;
  const Stream& stream_;
  std::vector<std::unique_ptr<GpuArray<uint16_t>>> matrices_;
  std::vector<std::unique_ptr<GpuArray<float>>> vectors_;
  ModelView view_;
  std::unique_ptr<StepModel> model_;
};

// KV pages full of random values, and the blocks of steps over them.
class Steps {
 public:
  Steps(RandomModel& model, int n_pages, const Stream& stream)
      : model_(model),
        stream_(stream),
        n_pages_(n_pages),
        kv_(n_pages * model.page_bytes() / 2),
        block_(8 << 20),
        logits_(int64_t{256} * model.shape().vocab),
        sampled_(kStepRows),
        scratch_(SampleScratchBytes(256, model.shape().vocab)),
        results_(256 * sizeof(SampleRowResult)),
        rows_(256) {
    GPU_CHECK(FillInputs(kv_.get(), {Distribution::kNormal, 5, 5, kv_.size() / 64, 64}, stream));
  }

  // A step of `n` rows at position `context` - 1 each, with sampling, as one graph.
  double RowsMicros(int n, int context) {
    std::vector<int32_t> tokens, positions, ends{0}, page_ends{0}, pages, logit_rows;
    const int per_row = (context + kPageTokens - 1) / kPageTokens;
    for (int i = 0; i < n; ++i) {
      tokens.push_back(1000 + i);
      positions.push_back(context - 1);
      ends.push_back(i + 1);
      for (int page = 0; page < per_row; ++page)
        pages.push_back((i * per_row + page) * 7 % n_pages_);
      page_ends.push_back((i + 1) * per_row);
      logit_rows.push_back(i);
      rows_.get()[i] = {.temperature = 0, .seed = 1, .position = context};
      rows_.get()[i].drawable = model_.shape().vocab;
      rows_.get()[i].result = i * 3;
    }
    Upload({tokens, positions, ends, page_ends, pages, logit_rows});
    const StepCounts counts{n, n, n, 0};
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    GPU_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    RunLayers(counts);
    GPU_CHECK(SampleRows(logits_.get(), n, model_.shape().vocab, rows_.get(), scratch_.get(),
                         results_.get(), sampled_.get(), stream_));
    GPU_CHECK(cudaStreamEndCapture(stream_, &graph));
    GPU_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    const double micros =
        MedianMicros(stream_, kSteps, [&] { GPU_CHECK(cudaGraphLaunch(executable, stream_)); });
    GPU_CHECK(cudaGraphExecDestroy(executable));
    GPU_CHECK(cudaGraphDestroy(graph));
    return micros;
  }

  // A prompt of `n` tokens in chunks; the last one has logits.
  double PrefillMicros(int n) {
    double micros = 0;
    for (int first = 0; first < n; first += kStepRows) {
      const int count = std::min(kStepRows, n - first);
      std::vector<int32_t> tokens, positions, pages, logit_rows;
      for (int i = 0; i < count; ++i) {
        tokens.push_back((first + i) * 31 % 128000);
        positions.push_back(first + i);
      }
      const int n_pages = (first + count + kPageTokens - 1) / kPageTokens;
      for (int page = 0; page < n_pages; ++page) pages.push_back(page * 7 % n_pages_);
      if (first + count == n) logit_rows.push_back(count - 1);
      Upload({tokens, positions, {0, count}, {0, n_pages}, pages, logit_rows});
      const StepCounts counts{count, 1, static_cast<int32_t>(logit_rows.size()), 0};
      micros += MedianMicros(stream_, 3, [&] { RunLayers(counts); });
    }
    return micros;
  }

 private:
  struct Block {
    std::vector<int32_t> tokens, positions, piece_begin, page_begin, pages, logit_rows;
  };

  void Upload(const Block& block) {
    const auto n_pieces = static_cast<int32_t>(block.piece_begin.size()) - 1;
    std::vector<int32_t> numbers = {static_cast<int32_t>(block.tokens.size()),
                                    n_pieces,
                                    static_cast<int32_t>(block.pages.size()),
                                    static_cast<int32_t>(block.logit_rows.size()),
                                    0,
                                    0};
    for (const auto* part : {&block.tokens, &block.positions, &block.piece_begin, &block.page_begin,
                             &block.pages, &block.logit_rows})
      numbers.insert(numbers.end(), part->begin(), part->end());
    numbers.insert(numbers.end(), static_cast<size_t>(n_pieces), 0);  // short ropes
    stream_.Wait();
    block_.Write(numbers);
  }

  void RunLayers(const StepCounts& counts) {
    StepModel& model = model_.model();
    GPU_CHECK(model.Begin(block_.get(), sampled_.get(), counts,
                          reinterpret_cast<uint8_t*>(kv_.get()), stream_));
    for (int layer = 0; layer < model_.shape().n_layers; ++layer)
      GPU_CHECK(model.Layer(layer, logits_.get(), stream_));
  }

  RandomModel& model_;
  const Stream& stream_;
  const int n_pages_;
  GpuArray<uint16_t> kv_;
  GpuArray<int32_t> block_;
  GpuArray<float> logits_;
  GpuArray<int32_t> sampled_;
  GpuArray<uint8_t> scratch_, results_;
  GpuArray<SampleRowArguments, true> rows_;
};

void MeasureModel(Report& report, const ModelShape& shape, bool is_quick) {
  const Stream stream;
  RandomModel model(shape, stream);
  Steps steps(model, 256 * 16, stream);
  const std::string name = shape.name;
  const double weights = 2 * (shape.LayerWeights() + 1.0 * shape.vocab * shape.hidden);
  const auto rows = [&](int n, int context) {
    const double micros = steps.RowsMicros(n, context);
    const double bytes = weights + n * shape.TokenBytes() * context;
    report.Add({"S4.steps", name + ", rows at 1 token each",
                std::to_string(n) + " x " + std::to_string(context), micros / 1000, "ms",
                Verdict::kInfo,
                std::to_string(100 * bytes / (kReadTerabytes * 1e6) / micros) +
                    " % of reading weights and KV at 4.49 TB/s"});
  };
  rows(1, 1024);
  rows(32, 1024);
  rows(256, 1024);
  if (!is_quick) {
    rows(8, 1024);
    rows(1, 16384);
    rows(64, 1024);
  }
  for (const int n : {512, 8192}) {
    const double micros = steps.PrefillMicros(n);
    const double operations = 2 * shape.LayerWeights() * n +
                              2.0 * n * n * shape.n_heads * shape.head_dim * shape.n_layers;
    report.Add(
        {"S4.steps", name + ", prefill", std::to_string(n), n / micros * 1e6, "tok/s",
         Verdict::kInfo,
         std::to_string(operations / micros * 1e-6) + " TFLOP/s, attention by its causal half"});
  }
}

}  // namespace

void MeasureSteps(Report& report, const CheckOptions& options) {
  MeasureModel(report, k1B, options.is_quick);
  MeasureModel(report, k8B, options.is_quick);
}

}  // namespace baton
