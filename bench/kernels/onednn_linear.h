// A linear layer computed by oneDNN, with weights in its preferred layout, for comparison with
// Baton's kernels, whose summation order oneDNN does not have. Built only where oneDNN is
// installed.
#pragma once

#include <cstdint>
#include <memory>

namespace baton {

enum class OneDnnType { kBf16, kInt8 };  // int8: unsigned activations, exact int32 sums

class OneDnnLinear {
 public:
  // y (rows, n) = x (rows, k) times weights (n, k), all random; so many copies of the weights, each
  // used in its turn, that caches do not hold them.
  OneDnnLinear(OneDnnType type, int64_t rows, int64_t k, int64_t n, int copies);
  ~OneDnnLinear();
  void Run();
  int64_t weight_bytes() const;  // bytes of one copy
  // The largest |y - double reference| / |reference| over a few outputs: the yardstick computes
  // what it should.
  double WorstError() const;

 private:
  struct Primitive;
  std::unique_ptr<Primitive> primitive_;
};

}  // namespace baton
