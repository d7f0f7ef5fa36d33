// The MLP of a layer in the plain fp32 mode: a single MLP, or experts. Engine thread.
#pragma once

#include <string>

#include "engine/cpu/fp32/fp32_weights.h"
#include "engine/model/model_desc.h"

namespace baton {

class Fp32Mlp {
 public:
  // `model` and `weights` outlive this object.
  Fp32Mlp(const ModelDesc& model, const Fp32Weights& weights) : model_(model), weights_(weights) {}

  // y (rows, hidden) = the layer's MLP of x, the normed rows. y may not be x.
  void Run(int layer, const Matrix& x, Matrix& y);

 private:
  void RunDense(const Matrix& x, const std::string& name, int width, Matrix& y);
  void RunExperts(const Matrix& x, const std::string& name, Matrix& y);
  void AddExpert(const Matrix& x, const std::string& name, int width, const Matrix& weights,
                 int column, Matrix& y);
  float Activate(float x) const;

  const ModelDesc& model_;
  const Fp32Weights& weights_;
  Matrix gate_, up_;
  Matrix weights_of_experts_, shared_weights_, expert_;  // sparse layers only
};

}  // namespace baton
