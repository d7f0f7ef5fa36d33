#include "engine/kv_layout.h"

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "engine/model_desc.h"

namespace baton {
namespace {

int64_t RoundUp64(int64_t n) { return (n + 63) / 64 * 64; }

}  // namespace

KvLayout KvLayout::For(const ModelDesc& model, KvType type, int page_tokens) {
  CHECK(page_tokens == 16 || page_tokens == 32 || page_tokens == 64);
  KvLayout layout;
  layout.type = type;
  layout.page_tokens = page_tokens;
  layout.n_layers = model.n_layers;
  layout.n_kv_heads = model.n_kv_heads;
  layout.head_dim = model.head_dim;
  layout.head_dim_padded = (model.head_dim + 31) / 32 * 32;
  const int64_t plane_bytes = layout.n_kv_heads * (layout.KHeadBytes() + layout.VHeadBytes());
  for (int layer = 0; layer < model.n_layers; ++layer) {
    layout.planes.push_back({layer * plane_bytes, plane_bytes});
  }
  layout.page_bytes = RoundUp64(model.n_layers * plane_bytes);
  return layout;
}

int64_t KvLayout::KHeadBytes() const {
  return static_cast<int64_t>(page_tokens) * head_dim_padded * element_bytes();
}

int64_t KvLayout::VHeadBytes() const {
  return static_cast<int64_t>(page_tokens) * head_dim * element_bytes();
}

int64_t KvLayout::KOffset(int /*layer*/, int kv_head) const { return kv_head * KHeadBytes(); }

int64_t KvLayout::VOffset(int /*layer*/, int kv_head) const {
  return n_kv_heads * KHeadBytes() + kv_head * VHeadBytes();
}

std::string KvLayout::layout_id() const {
  return absl::StrFormat("l%d-h%d-d%d-t%d-%s", n_layers, n_kv_heads, head_dim, page_tokens,
                         type == KvType::kBf16 ? "bf16-cpu16" : "fp32-plain");
}

}  // namespace baton
