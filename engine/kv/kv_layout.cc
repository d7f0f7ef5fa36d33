#include "engine/kv/kv_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "engine/model/model_desc.h"

namespace baton {
namespace {

int64_t RoundUp64(int64_t n) { return (n + 63) / 64 * 64; }

int64_t GroupBytes(KvType type, int64_t width) {
  constexpr int64_t kTokens = KvLayout::kGroupTokens;
  if (type == KvType::kInt8) return kTokens * (4 + width);
  return kTokens * width * (type == KvType::kFp32 ? 4 : 2);
}

const char* Name(KvType type) {
  switch (type) {
    case KvType::kBf16:
      return "bf16-cpu16";
    case KvType::kInt8:
      return "int8-cpu16";
    case KvType::kFp32:
      return "fp32-plain";
    case KvType::kBf16Rows:
      return "bf16-rows64";
  }
  BATON_CHECK(false);
}

std::string Name(const KvShape& shape) {
  return absl::StrFormat("h%d-k%d-v%d%s", shape.heads, shape.key_dim, shape.value_dim,
                         shape.values_in_keys ? "-latent" : "");
}

}  // namespace

KvLayout KvLayout::For(const ModelDesc& model, KvType type, int page_tokens) {
  const LatentDesc& latent = model.latent;
  const KvShape shape = latent.rank > 0 ? KvShape{1, latent.key_dim(), latent.rank, true}
                                        : KvShape{model.n_kv_heads, model.head_dim, model.head_dim};
  KvLayout layout =
      Of(std::vector<KvShape>(static_cast<size_t>(model.n_layers), shape), type, page_tokens);
  std::vector<int> windows = model.windows;
  for (int& window : windows)
    if (window >= model.max_positions) window = 0;  // no position ever falls out of the window
  layout.SetWindows(windows);
  return layout;
}

KvLayout KvLayout::Of(std::vector<KvShape> shapes, KvType type, int page_tokens) {
  BATON_CHECK(page_tokens == 16 || page_tokens == 32 || page_tokens == 64);
  KvLayout layout;
  layout.type = type;
  layout.page_tokens = page_tokens;
  layout.shapes = std::move(shapes);
  int64_t end = 0;
  for (int layer = 0; layer < static_cast<int>(layout.shapes.size()); ++layer) {
    const int64_t head_bytes = layout.KGroupBytes(layer) + layout.VGroupBytes(layer);
    const int64_t bytes = layout.shape(layer).heads * layout.groups() * head_bytes;
    layout.planes.push_back({end, bytes});
    end += bytes;
  }
  layout.page_bytes = RoundUp64(end);
  return layout;
}

void KvLayout::SetWindows(std::span<const int> windows) {
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    planes[layer].has_window = windows[layer] > 0;
    window = std::max(window, windows[layer]);
  }
  if (!planes_apart()) return;
  int64_t frame = 0;
  for (const KvPlane& plane : planes) frame = std::max(frame, RoundUp64(plane.bytes));
  for (size_t layer = 0; layer < planes.size(); ++layer)
    planes[layer].offset = static_cast<int64_t>(layer) * frame;
  page_bytes = frame * n_layers();
}

int KvLayout::n_windows() const {
  return static_cast<int>(std::count_if(planes.begin(), planes.end(),
                                        [](const KvPlane& plane) { return plane.has_window; }));
}

int64_t KvLayout::KGroupBytes(int layer) const {
  if (type == KvType::kBf16Rows) return GroupBytes(type, RoundUp64(shape(layer).key_dim));
  const bool is_padded = type != KvType::kInt8;
  return GroupBytes(type, is_padded ? shape(layer).key_dim_padded() : shape(layer).key_dim);
}

int64_t KvLayout::VGroupBytes(int layer) const {
  if (shape(layer).values_in_keys) return 0;
  const int64_t width = shape(layer).value_dim;
  return GroupBytes(type, type == KvType::kBf16Rows ? RoundUp64(width) : width);
}

int64_t KvLayout::KOffset(int layer, int kv_head) const {
  return kv_head * groups() * KGroupBytes(layer);
}

int64_t KvLayout::VOffset(int layer, int kv_head) const {
  BATON_CHECK(!shape(layer).values_in_keys);
  return KOffset(layer, shape(layer).heads) + kv_head * groups() * VGroupBytes(layer);
}

std::string KvLayout::layout_id() const {
  std::string id;
  for (size_t at = 0, end; at < shapes.size(); at = end) {  // runs of layers with the same shape
    for (end = at + 1; end < shapes.size() && shapes[end] == shapes[at];) ++end;
    absl::StrAppend(&id, end - at, "x", Name(shapes[at]), "-");
  }
  return absl::StrFormat("%st%d-%s", id, page_tokens, Name(type));
}

}  // namespace baton
