// Matrix and dot product of the plain fp32 backend. Plain code that may allocate anywhere.
#pragma once

#include <algorithm>
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

}  // namespace baton
