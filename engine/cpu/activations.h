// Memory of a step's activations: sized for the largest step when the backend loads, so that no
// step allocates. Untouched pages cost nothing, so sizes may be those of the worst case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/numerics/bf16.h"

namespace baton {

// A row-major matrix of activations inside an arena; columns beyond its width stay zero.
struct Activations {
  bf16* data = nullptr;
  int64_t stride = 0;  // whole 32-k groups
  bf16* row(int64_t r) const { return data + r * stride; }
};

// One mapping of zeros for everything that was asked for before Map, which sets the pointers.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `to` outlives Map.
  template <typename T>
  void Ask(T*& to, int64_t count) {
    const int64_t offset = Place(count * static_cast<int64_t>(sizeof(T)));
    set_.push_back([&to, offset](std::byte* base) { to = reinterpret_cast<T*>(base + offset); });
  }
  void Ask(Activations& to, int64_t rows, int64_t width);
  bool Map();  // false: no memory
  int64_t bytes() const { return bytes_; }

 private:
  int64_t Place(int64_t bytes);

  std::vector<std::function<void(std::byte* base)>> set_;  // each sets one pointer
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace baton
