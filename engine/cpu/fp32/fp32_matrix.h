// What the plain fp32 backend computes with: a matrix, a dot product. Plain code that allocates
// where it likes.
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
  // Some rows of it as a matrix of their own.
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
