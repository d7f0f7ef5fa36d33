// Bytes of answers of one connection that the kernel has not taken. A plain object, on the loop's
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// Empties a buffer that may have been large: memory of a connection is what it holds, not what it
// once held.
inline void GiveBack(std::string* buffer) {
  constexpr size_t kMaxSpare = 4 << 10;  // bytes that an empty buffer keeps
  buffer->clear();
  if (buffer->capacity() > kMaxSpare) std::string().swap(*buffer);
}

class AnswerBytes {
 public:
  std::string* end() { return &pending_; }  // more is appended here
  bool empty() const { return pending_.empty() && writing_.empty(); }
  bool all_begun() const { return pending_.empty(); }  // what Next told is the last
  size_t size() const { return pending_.size() + writing_.size() - written_; }
  size_t memory() const { return MemoryOf(pending_) + MemoryOf(writing_); }
  // Returns what is written next; it stays as it is until Took. Empty: nothing is left.
  std::string_view Next() {
    if (writing_.empty()) writing_.swap(pending_);
    return std::string_view(writing_).substr(written_);
  }
  // The kernel has taken so many bytes of Next. True: all of them.
  bool Took(size_t n) {
    written_ += n;
    const bool is_whole = written_ == writing_.size();
    if (is_whole) {
      GiveBack(&writing_);
    } else if (2 * written_ >= writing_.size()) {  // a slow reader holds what it has not read
      writing_ = writing_.substr(written_);
    } else {
      return false;
    }
    written_ = 0;
    return is_whole;
  }
  void DropPending() { GiveBack(&pending_); }  // Next may still be read by a write under way

 private:
  static size_t MemoryOf(const std::string& buffer) {
    return buffer.empty() ? 0 : buffer.capacity();
  }

  std::string pending_, writing_;
  size_t written_ = 0;  // bytes of writing_ that the kernel has taken
};

}  // namespace baton
