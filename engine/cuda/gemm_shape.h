// The shape of a matrix product: C (m, n) = A (m, k) * B (n, k)^T.
#pragma once

namespace baton {

struct GemmShape {
  int m = 0;
  int n = 0;
  int k = 0;  // a multiple of 64; rows are padded with zeros
};

}  // namespace baton
