#include "engine/model/model_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// Random ids determine the weights of a seed: golden digests depend on them.
constexpr uint32_t kEmbedId = 0;
constexpr uint32_t kFinalNormId = 1;
constexpr uint32_t kHeadId = 2;
constexpr uint32_t kFinalNormBiasId = 3;
constexpr uint32_t kFirstLayerId = 16;
constexpr uint32_t kIdsPerLayer = 16;
constexpr uint32_t kFirstHeadNormId = 1 << 16;  // beyond all layers' ids; two per layer
constexpr uint32_t kFirstFurtherId = 1 << 17;   // biases of norms, norms of outputs
constexpr uint32_t kFirstExpertId = 1 << 20;
constexpr uint32_t kIdsPerExpert = 4;
// Larger than the ids of all experts and of the tensors after them.
constexpr uint32_t kIdsPerSparseLayer = 2048 * kIdsPerExpert;

class TensorList {
 public:
  explicit TensorList(const ModelDesc& model) : m_(model), n_(*model.names) {
    Matrix("embed", Whole(n_.embed, m_.vocab), m_.hidden, kEmbedId);
    for (int layer = 0; layer < m_.n_layers; ++layer) AddLayer(layer);
    ours_.clear();
    published_.clear();
    Norm("final_norm", n_.final_norm, m_.hidden, kFinalNormId, kFinalNormBiasId);
    if (!m_.tied_embeddings) Matrix("lm_head", Whole(n_.lm_head, m_.vocab), m_.hidden, kHeadId);
  }
  std::vector<TensorSpec> Take() { return std::move(tensors_); }

 private:
  // Rows of a published tensor.
  struct Place {
    std::string_view published;
    int64_t stored_rows;
    std::vector<RowRange> ranges;
    int64_t rows() const {
      int64_t n = 0;
      for (const RowRange& range : ranges) n += range.count;
      return n;
    }
  };
  static Place Whole(std::string_view published, int64_t rows) {
    return {published, rows, {{0, rows}}};
  }
  // Rows [first, first + count) of each of `parts` equal parts.
  static Place OfEachPart(std::string_view published, int64_t stored_rows, int64_t parts,
                          int64_t first, int64_t count) {
    Place place{published, stored_rows, {}};
    for (int64_t part = 0; part < parts; ++part) {
      place.ranges.push_back({part * (stored_rows / parts) + first, count});
    }
    return place;
  }

  void AddLayer(int layer) {
    ours_ = absl::StrCat("layers.", layer, ".");
    published_ = absl::StrCat(std::string(n_.layers), layer, ".");
    const uint32_t id = kFirstLayerId + layer * kIdsPerLayer;
    const uint32_t further = kFirstFurtherId + layer * kIdsPerLayer;
    Norm("attention_norm", n_.attention_norm, m_.hidden, id, further);
    if (m_.latent.rank > 0) {
      AddLatent(id);
    } else {
      AddQkv(id);
    }
    if (m_.qk_norm) {
      const uint32_t head_norm_id = kFirstHeadNormId + layer * 2;
      Norm("q_norm", n_.q_norm, m_.head_dim, head_norm_id, 0);
      Norm("k_norm", n_.k_norm, m_.head_dim, head_norm_id + 1, 0);
    }
    Linear("o", Whole(n_.o, m_.hidden), m_.attended_width(), id + 4, m_.o_bias, id + 12);
    if (m_.output_norms) {
      Norm("attention_out_norm", n_.attention_out_norm, m_.hidden, further + 2, 0);
    }
    if (m_.mlp_norm) Norm("mlp_norm", n_.mlp_norm, m_.hidden, id + 5, further + 1);
    if (m_.experts.is_sparse(layer)) return AddExperts(layer);
    AddMlp(id);
    if (m_.output_norms) Norm("mlp_out_norm", n_.mlp_out_norm, m_.hidden, further + 3, 0);
  }

  void AddQkv(uint32_t id) {
    const int64_t q = m_.q_width(), kv = m_.kv_width(), all = q + 2 * kv;
    const int64_t parts = n_.qkv_by_kv_head ? m_.n_kv_heads : 1;
    const auto place = [&](std::string_view alone, int64_t first, int64_t rows) {
      return n_.qkv.empty() ? Whole(alone, rows)
                            : OfEachPart(n_.qkv, all, parts, first / parts, rows / parts);
    };
    const auto heads = [&](std::string_view alone, int64_t first, int64_t rows) {
      return n_.qk_in_pairs ? InPairs(alone, rows) : place(alone, first, rows);
    };
    Linear("q", heads(n_.q, 0, q), m_.hidden, id + 1, m_.qkv_bias, id + 9);
    Linear("k", heads(n_.k, q, kv), m_.hidden, id + 2, m_.qkv_bias, id + 10);
    Linear("v", place(n_.v, q + kv, kv), m_.hidden, id + 3, m_.qkv_bias, id + 11);
  }

  // Checkpoints store the pairs of RoPE side by side; the engine stores second halves after first
  // halves, as in all other models. A score is a sum over the pairs, so their order does not
  // matter.
  void AddLatent(uint32_t id) {
    const LatentDesc& l = m_.latent;
    const int64_t heads = m_.n_heads, up = l.plain_dim + l.value_dim;
    const bool is_deep = l.query_rank > 0;
    Place q{is_deep ? n_.query_up : n_.q, m_.q_width(), {}};
    for (int64_t head = 0; head < heads; ++head) {
      q.ranges.push_back({head * l.query_dim(), l.plain_dim});
      AddPairs(head * l.query_dim() + l.plain_dim, l.rotated_dim, q);
    }
    Place latent{n_.latent, l.key_dim(), {{0, l.rank}}};
    AddPairs(l.rank, l.rotated_dim, latent);
    if (is_deep) {
      Matrix("query_latent", Whole(n_.query_latent, l.query_rank), m_.hidden, id + 11);
      Norm("query_latent_norm", n_.query_latent_norm, l.query_rank, id + 12, 0);
    }
    Matrix("q", q, is_deep ? l.query_rank : m_.hidden, id + 1);
    Matrix("latent", latent, m_.hidden, id + 2);
    Norm("latent_norm", n_.latent_norm, l.rank, id + 9, 0);
    Matrix("key_up", OfEachPart(n_.latent_up, heads * up, heads, 0, l.plain_dim), l.rank, id + 3);
    Matrix("value_up", OfEachPart(n_.latent_up, heads * up, heads, l.plain_dim, l.value_dim),
           l.rank, id + 10);
  }
  // Adds `width` rows from `first` on: first the first row of each pair, then the second ones.
  static void AddPairs(int64_t first, int width, Place& place) {
    for (const int half : {0, 1}) {
      for (int i = half; i < width; i += 2) place.ranges.push_back({first + i, 1});
    }
  }
  Place InPairs(std::string_view published, int64_t rows) const {
    Place place{published, rows, {}};
    for (int64_t head = 0; head < rows; head += m_.head_dim) AddPairs(head, m_.head_dim, place);
    return place;
  }

  void AddMlp(uint32_t id) {
    const int64_t width = m_.intermediate;
    const bool fused = !n_.gate_up.empty();
    const Place gate =
        fused ? OfEachPart(n_.gate_up, 2 * width, 1, 0, width) : Whole(n_.gate, width);
    const Place up =
        fused ? OfEachPart(n_.gate_up, 2 * width, 1, width, width) : Whole(n_.up, width);
    if (m_.gated_mlp) Linear("gate", gate, m_.hidden, id + 6, m_.mlp_bias, id + 13);
    Linear("up", up, m_.hidden, id + 7, m_.mlp_bias, id + 14);
    Linear("down", Whole(n_.down, m_.hidden), m_.intermediate, id + 8, m_.mlp_bias, id + 15);
  }

  void AddExperts(int layer) {
    const ExpertsDesc& e = m_.experts;
    const uint32_t first = kFirstExpertId + layer * kIdsPerSparseLayer;
    const uint32_t shared = first + e.n * kIdsPerExpert, router = shared + kIdsPerExpert;
    Matrix("router", Whole(n_.router, e.n), m_.hidden, router);
    if (e.corrected) {
      Add("correction", "", Whole(n_.correction, e.n), "", router + 2).is_vector = true;
    }
    for (int i = 0; i < e.n; ++i) {
      AddExpert(absl::StrCat("experts.", i, "."), absl::StrCat(std::string(n_.experts), i, "."),
                e.intermediate, first + i * kIdsPerExpert);
    }
    if (e.shared_intermediate == 0) return;
    if (e.shared_gate) Matrix("shared_gate", Whole(n_.shared_gate, 1), m_.hidden, router + 1);
    AddExpert("shared.", std::string(n_.shared), e.shared_intermediate, shared);
  }

  void AddExpert(const std::string& ours, const std::string& published, int64_t width,
                 uint32_t id) {
    const auto matrix = [&](const char* name, std::string_view stored, int64_t rows, int64_t cols) {
      Matrix(ours + name, Whole(published + std::string(stored), rows), cols, id++);
    };
    matrix("gate", n_.expert_gate, width, m_.hidden);
    matrix("up", n_.expert_up, width, m_.hidden);
    matrix("down", n_.expert_down, m_.hidden, width);
  }

  void Linear(std::string_view ours, const Place& place, int64_t cols, uint32_t id, bool has_bias,
              uint32_t bias_id) {
    Matrix(ours, place, cols, id);
    if (has_bias) Bias(ours, place, bias_id);
  }
  void Matrix(std::string_view ours, const Place& place, int64_t cols, uint32_t id) {
    Add(ours, "", place, ".weight", id).cols = cols;
  }
  void Bias(std::string_view ours, const Place& place, uint32_t id) {
    Add(ours, ".bias", place, ".bias", id).is_vector = true;
  }
  void Norm(std::string_view ours, std::string_view published, int64_t rows, uint32_t id,
            uint32_t bias_id) {
    TensorSpec& spec = Add(ours, "", Whole(published, rows), ".weight", id);
    spec.is_vector = spec.is_norm = true;
    spec.norm_offset = m_.norm_plus_one ? 1.0f : 0.0f;
    if (m_.layer_norm) Bias(ours, Whole(published, rows), bias_id);
  }
  TensorSpec& Add(std::string_view ours, const char* end, const Place& place,
                  const char* published_end, uint32_t id) {
    TensorSpec& spec = tensors_.emplace_back();
    spec.name = absl::StrCat(ours_, std::string(ours), end);
    spec.rows = place.rows();
    spec.random_id = id;
    spec.stored_name = absl::StrCat(published_, std::string(place.published), published_end);
    spec.stored_rows = place.stored_rows;
    spec.stored_ranges = place.ranges;
    return spec;
  }

  const ModelDesc& m_;
  const TensorNames& n_;
  std::string ours_, published_;  // prefixes of the current layer
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
