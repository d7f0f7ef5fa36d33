// A growing block of 64-byte aligned memory, on huge pages where it is large and the kernel grants
// them. Contents are not kept when it grows. One owner, no locks.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace baton {

class AlignedBuffer {
 public:
  // Returns at least `bytes` bytes, valid until a larger Reserve.
  void* Reserve(size_t bytes);

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  size_t capacity_ = 0;
};

}  // namespace baton
