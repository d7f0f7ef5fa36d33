// Layout of the bytes of a KV page. Only the engine computes addresses of keys and values; the
// transfer room sees planes (here: one per layer) as (offset, bytes) inside a page.
//
// Arena, unless planes lie apart: [page][layer][K|V][kv_head][group], a group being sixteen tokens
// (tag cpu16, numerics v1):
//   K group: [key_dim_padded / 2][16 tokens][2]     V group: [16 / 2 token pairs][value_dim][2]
// AVX2, AVX-512 and AMX read this layout alike, whatever page_tokens is.
// int8: sixteen fp32 scales, one per token, then K [key_dim][16 tokens], V [16 tokens][value_dim];
// an element is number * scale.
// fp32 (the plain mode): rows of tokens, K [16 tokens][key_dim_padded], V [16 tokens][value_dim].
// bf16 rows (a GPU): the same, with K and V in bf16 rows of a multiple of 64 values, zeros behind a
// head's.
// Plain values; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace baton {

struct ModelDesc;

// kFp32 belongs to the plain fp32 mode, kBf16Rows to GPUs.
enum class KvType { kBf16, kInt8, kFp32, kBf16Rows };

// Shape of the KV of one token in one layer.
struct KvShape {
  int heads = 0;    // KV heads
  int key_dim = 0;  // of one head
  int value_dim = 0;
  // Latent attention: the value is the first value_dim elements of the key; there is no V.
  bool values_in_keys = false;

  int key_dim_padded() const { return (key_dim + 31) / 32 * 32; }  // K stores the zeros too
  bool operator==(const KvShape&) const = default;
};

struct KvPlane {
  int64_t offset;  // bytes from the start of the page
  int64_t bytes;
  bool has_window = false;  // the layer has a window
};

// Addresses of one layer's planes by page id; pointers into the KvPool.
struct KvPlaneTable {
  std::byte* base = nullptr;
  int64_t stride = 0;  // bytes from one page's plane (or one frame) to the next
  // Not null: every plane has its own frame, frames[page * frames_per_page].
  const int32_t* frames = nullptr;
  int frames_per_page = 0;
  std::byte* At(int32_t page) const {
    return base + stride * (frames == nullptr ? page : frames[int64_t{page} * frames_per_page]);
  }
};

struct KvLayout {
  static constexpr int kGroupTokens = 16;

  KvType type = KvType::kBf16;
  int page_tokens = 64;         // 16, 32 or 64
  int64_t page_bytes = 0;       // all layers, rounded up to 64
  std::vector<KvShape> shapes;  // (layers)
  std::vector<KvPlane> planes;  // (layers)
  // Window of the attention in tokens, the query included (the largest if layers differ); 0: no
  // layer has a window.
  int window = 0;

  // Both CHECK that page_tokens is 16, 32 or 64. For sets the model's windows; a window as long as
  // the served context counts as none.
  static KvLayout For(const ModelDesc& model, KvType type, int page_tokens);
  static KvLayout Of(std::vector<KvShape> shapes, KvType type, int page_tokens);  // no windows

  int n_layers() const { return static_cast<int>(planes.size()); }
  const KvShape& shape(int layer) const { return shapes[static_cast<size_t>(layer)]; }
  // Bytes of K (V) of one head in one group of sixteen tokens.
  int64_t KGroupBytes(int layer) const;
  int64_t VGroupBytes(int layer) const;
  // Offset in bytes inside a layer's plane of one head's K (or V) groups. VOffset CHECKs that the
  // layer has V.
  int64_t KOffset(int layer, int kv_head) const;
  int64_t VOffset(int layer, int kv_head) const;
  int PagesFor(int n_tokens) const { return (n_tokens + page_tokens - 1) / page_tokens; }
  // windows: (layers) window of each layer, 0: none. If only some layers have a window, the planes
  // of a page lie apart, each in a frame as large as the largest plane, so that planes with a
  // window can be given back alone.
  void SetWindows(std::span<const int> windows);
  int n_windows() const;  // layers with a window
  bool planes_apart() const { return n_windows() > 0 && n_windows() < n_layers(); }
  // Bytes of K and V of one token in one layer, averaged over the layers.
  int64_t token_bytes() const { return std::max<int64_t>(1, frame_bytes() / page_tokens); }
  int64_t frame_bytes() const { return page_bytes / n_layers(); }
  // Number of leading pages of a sequence that no query from `position` on can see, in layers with
  // a window.
  int PagesPassed(int position) const {
    return window == 0 || position < window ? 0 : (position + 1 - window) / page_tokens;
  }
  // Names shapes, page size, element type and inner tag: two workers exchange KV only if equal.
  std::string layout_id() const;

 private:
  int groups() const { return page_tokens / kGroupTokens; }
};

}  // namespace baton
