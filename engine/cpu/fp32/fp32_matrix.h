// Matrix and arithmetic of the plain fp32 backend. Plain code that may allocate anywhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace baton {

struct Matrix {
  std::vector<float> data;
  int64_t cols = 0;
  void Resize(int64_t rows, int64_t width) {
    cols = width;
    data.resize(static_cast<size_t>(rows * width));
  }
  float* row(int64_t r) { return data.data() + r * cols; }
  const float* row(int64_t r) const { return data.data() + r * cols; }
  int64_t rows() const { return static_cast<int64_t>(data.size()) / cols; }
  // Copies some rows to a separate matrix.
  void Read(const std::vector<int32_t>& rows, Matrix& to) const {
    for (size_t i = 0; i < rows.size(); ++i) std::copy_n(row(rows[i]), cols, to.row(i));
  }
  void Write(const std::vector<int32_t>& rows, const Matrix& from) {
    for (size_t i = 0; i < rows.size(); ++i) std::copy_n(from.row(i), cols, row(rows[i]));
  }
};

// Sixteen partial sums, then their sum in ascending order: fixed for a given n.
float Dot(const float* a, const float* b, int64_t n);
// x += y.
void Add(const Matrix& y, Matrix& x);
// Norms as many values as the weight has; out may be x.
void NormRow(const float* x, const std::vector<float>& weight, float eps, float* out);
// Subtracts the mean of n values.
void Centre(float* x, size_t n);
float SoftCap(float x, double cap);  // cap 0: none

}  // namespace baton
