// Memory for the activations of a step: sized for the largest step when the backend loads, so that
// no step allocates. Untouched pages cost nothing, so sizes may be worst-case sizes. Engine thread.
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

// One zeroed mapping for everything requested before Map; Map sets the pointers.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Requests `count` elements; Map sets `to`, which must outlive the call of Map.
  template <typename T>
  void Ask(T*& to, int64_t count) {
    const int64_t offset = Place(count * static_cast<int64_t>(sizeof(T)));
    set_.push_back([&to, offset](std::byte* base) { to = reinterpret_cast<T*>(base + offset); });
  }
  void Ask(Activations& to, int64_t rows, int64_t width);
  bool Map();  // false: not enough memory
  int64_t bytes() const { return bytes_; }

 private:
  int64_t Place(int64_t bytes);

  std::vector<std::function<void(std::byte* base)>> set_;  // setters, one per pointer
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace baton
