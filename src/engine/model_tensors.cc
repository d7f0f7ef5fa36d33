#include "engine/model_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// Random ids are part of what a seed means: golden digests depend on them.
constexpr uint32_t kEmbedId = 0;
constexpr uint32_t kFinalNormId = 1;
constexpr uint32_t kHeadId = 2;
constexpr uint32_t kFirstLayerId = 16;
constexpr uint32_t kIdsPerLayer = 16;
constexpr uint32_t kFirstHeadNormId = 1 << 16;  // beyond all layers' ids; two of each layer
constexpr uint32_t kFirstExpertId = 1 << 20;
constexpr uint32_t kIdsPerExpert = 4;
constexpr uint32_t kIdsPerSparseLayer = 2048 * kIdsPerExpert;  // above all experts and what follows

class TensorList {
 public:
  explicit TensorList(const ModelDesc& model) : m_(model), n_(*model.names) {
    Matrix("embed", n_.embed, m_.vocab, m_.hidden, kEmbedId);
    for (int layer = 0; layer < m_.n_layers; ++layer) AddLayer(layer);
    ours_.clear();
    published_.clear();
    Norm("final_norm", n_.final_norm, m_.hidden, kFinalNormId);
    if (!m_.tied_embeddings) Matrix("lm_head", n_.lm_head, m_.vocab, m_.hidden, kHeadId);
  }
  std::vector<TensorSpec> Take() { return std::move(tensors_); }

 private:
  void AddLayer(int layer) {
    ours_ = absl::StrCat("layers.", layer, ".");
    published_ = absl::StrCat(std::string(n_.layers), layer, ".");
    const uint32_t id = kFirstLayerId + layer * kIdsPerLayer;
    const uint32_t head_norm_id = kFirstHeadNormId + layer * 2;
    const int64_t q = m_.q_width(), kv = m_.kv_width();
    Norm("attention_norm", n_.attention_norm, m_.hidden, id);
    Linear("q", n_.q, q, m_.hidden, id + 1, m_.qkv_bias, id + 9);
    Linear("k", n_.k, kv, m_.hidden, id + 2, m_.qkv_bias, id + 10);
    Linear("v", n_.v, kv, m_.hidden, id + 3, m_.qkv_bias, id + 11);
    if (m_.qk_norm) {
      Norm("q_norm", n_.q_norm, m_.head_dim, head_norm_id);
      Norm("k_norm", n_.k_norm, m_.head_dim, head_norm_id + 1);
    }
    Linear("o", n_.o, m_.hidden, q, id + 4, m_.o_bias, id + 12);
    Norm("mlp_norm", n_.mlp_norm, m_.hidden, id + 5);
    if (m_.experts.is_sparse(layer)) return AddExperts(layer);
    Linear("gate", n_.gate, m_.intermediate, m_.hidden, id + 6, m_.mlp_bias, id + 13);
    Linear("up", n_.up, m_.intermediate, m_.hidden, id + 7, m_.mlp_bias, id + 14);
    Linear("down", n_.down, m_.hidden, m_.intermediate, id + 8, m_.mlp_bias, id + 15);
  }

  void AddExperts(int layer) {
    const ExpertsDesc& e = m_.experts;
    const uint32_t first = kFirstExpertId + layer * kIdsPerSparseLayer;
    const uint32_t shared = first + e.n * kIdsPerExpert, router = shared + kIdsPerExpert;
    Matrix("router", n_.router, e.n, m_.hidden, router);
    for (int i = 0; i < e.n; ++i) {
      AddExpert(absl::StrCat("experts.", i, "."), absl::StrCat(std::string(n_.experts), i, "."),
                e.intermediate, first + i * kIdsPerExpert);
    }
    if (e.shared_intermediate == 0) return;
    if (e.shared_gate) Matrix("shared_gate", n_.shared_gate, 1, m_.hidden, router + 1);
    AddExpert("shared.", std::string(n_.shared), e.shared_intermediate, shared);
  }

  void AddExpert(const std::string& ours, const std::string& published, int64_t width,
                 uint32_t id) {
    const auto matrix = [&](const char* name, std::string_view stored, int64_t rows, int64_t cols) {
      Matrix(ours + name, published + std::string(stored), rows, cols, id++);
    };
    matrix("gate", n_.expert_gate, width, m_.hidden);
    matrix("up", n_.expert_up, width, m_.hidden);
    matrix("down", n_.expert_down, m_.hidden, width);
  }

  void Linear(std::string_view ours, std::string_view published, int64_t rows, int64_t cols,
              uint32_t id, bool has_bias, uint32_t bias_id) {
    Matrix(ours, published, rows, cols, id);
    if (has_bias) Bias(ours, published, rows, bias_id);
  }
  void Matrix(std::string_view ours, std::string_view published, int64_t rows, int64_t cols,
              uint32_t id) {
    Add(ours, "", published, ".weight", rows, id).cols = cols;
  }
  void Bias(std::string_view ours, std::string_view published, int64_t rows, uint32_t id) {
    Add(ours, ".bias", published, ".bias", rows, id).is_vector = true;
  }
  void Norm(std::string_view ours, std::string_view published, int64_t rows, uint32_t id) {
    TensorSpec& spec = Add(ours, "", published, ".weight", rows, id);
    spec.is_vector = spec.is_norm = true;
  }
  TensorSpec& Add(std::string_view ours, const char* end, std::string_view published,
                  const char* published_end, int64_t rows, uint32_t id) {
    TensorSpec& spec = tensors_.emplace_back();
    spec.name = absl::StrCat(ours_, std::string(ours), end);
    spec.rows = spec.stored_rows = rows;
    spec.random_id = id;
    spec.stored_name = absl::StrCat(published_, std::string(published), published_end);
    spec.stored_ranges = {{0, rows}};
    return spec;
  }

  const ModelDesc& m_;
  const TensorNames& n_;
  std::string ours_, published_;  // prefixes of the layer at hand
  std::vector<TensorSpec> tensors_;
};

}  // namespace

std::vector<TensorSpec> TensorsOf(const ModelDesc& model) { return TensorList(model).Take(); }

int64_t ModelDesc::n_parameters() const {
  int64_t n = 0;
  for (const TensorSpec& spec : TensorsOf(*this)) n += spec.rows * spec.cols;
  return n;
}

}  // namespace baton
