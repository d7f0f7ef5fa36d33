// The ids of texts that were tokenized before, so that a conversation which goes on costs its new
// messages only: the text between two special tokens is tokenized by itself, so its ids depend on
// nothing else. Bounded in bytes; what was not used for longest goes first, by half of the cache.
// Entries are of one salt, so that no tenant finds out by time what another one has sent. Any
// thread; threads wait for each other only while an entry is looked up or put in. Belongs to one
// tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

struct NativeSegmentCache;  // the Rust object behind it

class SegmentCache {
 public:
  struct Counts {
    uint64_t bytes = 0;  // of the entries, as a bound
    uint64_t hits = 0, misses = 0;
  };

  explicit SegmentCache(size_t max_bytes);
  ~SegmentCache();
  SegmentCache(const SegmentCache&) = delete;
  SegmentCache& operator=(const SegmentCache&) = delete;

  Counts counts() const;

 private:
  friend class Tokenizer;
  NativeSegmentCache* native_;
};

// A cache as one salt sees it. Null: nothing is cached.
struct CachedSegments {
  CachedSegments(SegmentCache* all = nullptr, uint64_t salt_of_it = 0)  // NOLINT: a cache is one
      : cache(all), salt(salt_of_it) {}
  SegmentCache* cache;
  uint64_t salt;
};

}  // namespace baton
