// How many tokens requests bring, as recent ones did: what a row that runs is expected to need
// still. max_tokens says it badly, since most requests stop long before. A plain object, one
// thread.
#pragma once

#include <array>
#include <cstdint>

namespace baton {

class OutputRecord {
 public:
  // A request has ended with so many tokens, at least one.
  void Add(int32_t tokens);
  // Tokens that a request with `made` tokens is expected to bring still, at most `left` (what its
  // max_tokens allows): three of four requests that came as far brought no more. Before kFirst
  // requests have ended: `left`. Where none came as far: as many as it has brought.
  int32_t Left(int32_t made, int32_t left) const;

  static constexpr int kFirst = 20;

 private:
  static constexpr int kBuckets = 96;  // by quarters of an octave
  std::array<double, kBuckets> weights_{};
  int n_ended_ = 0;
};

}  // namespace baton
