#include "engine/checkpoint/quantized_parts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

using Shape = std::vector<int64_t>;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Collects the parts of one matrix; the first mismatch is the error.
class Collector {
 public:
  Collector(const Checkpoint& checkpoint, const QuantScheme& scheme, const std::string& module,
            int64_t rows, int64_t cols)
      : checkpoint_(checkpoint), scheme_(scheme), module_(module), per_word_(32 / scheme.bits) {
    QuantizedTensor& t = found_.tensor;
    t.layout = scheme.layout;
    t.bits = scheme.bits;
    t.rows = rows;
    t.cols = cols;
    t.block_rows = scheme.block_rows > 0 ? scheme.block_rows : rows;
    t.group = scheme.group > 0 ? scheme.group : cols;
    t.n_groups = DivideUp(cols, t.group);
    t.zeros_less_one = scheme.zeros_less_one;
  }

  absl::StatusOr<QuantizedParts> Collect() {
    RETURN_IF_ERROR(CheckDivides());
    switch (scheme_.layout) {
      case CodeLayout::kGptq:
      case CodeLayout::kAwq:
        RETURN_IF_ERROR(CollectTransposed());
        break;
      case CodeLayout::kPacked:
        RETURN_IF_ERROR(CollectPacked());
        break;
      case CodeLayout::kInt8:
      case CodeLayout::kFp8:
        RETURN_IF_ERROR(CollectBytes());
    }
    return std::move(found_);
  }

 private:
  absl::Status Refuse(const std::string& tensor, const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: tensor \"%s\" %s", checkpoint_.folder(), tensor, what));
  }

  absl::Status CheckDivides() const {
    const QuantizedTensor& t = found_.tensor;
    // Blocks may be cut off at the edge; groups of a row may not.
    const bool is_blocks = scheme_.block_rows != 1;
    if (!is_blocks && t.cols % t.group != 0) {
      return Refuse(module_ + ".weight",
                    absl::StrFormat("has %d inputs, which the group_size %d of quantization_config "
                                    "does not divide",
                                    t.cols, t.group));
    }
    const bool is_transposed = t.layout == CodeLayout::kGptq || t.layout == CodeLayout::kAwq;
    const bool is_whole =
        t.rows % per_word_ == 0 && (t.layout == CodeLayout::kAwq || t.cols % per_word_ == 0);
    if (is_transposed && !is_whole) {
      return Refuse(module_ + ".weight",
                    absl::StrFormat("is %s; codes of %d bits need multiples of %d",
                                    ShapeText({t.rows, t.cols}), t.bits, per_word_));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const TensorView*> Get(const std::string& name,
                                        const std::vector<std::string>& dtypes,
                                        const std::vector<Shape>& shapes) const {
    const TensorView* view = checkpoint_.Find(name);
    const auto append = [](std::string* out, const Shape& shape) { out->append(ShapeText(shape)); };
    const std::string wanted =
        absl::StrFormat("config.json with its quantization_config asks for %s of shape %s",
                        absl::StrJoin(dtypes, ", "), absl::StrJoin(shapes, " or ", append));
    if (view == nullptr) {
      return absl::NotFoundError(
          absl::StrFormat("%s: tensor \"%s\" is missing; %s", checkpoint_.folder(), name, wanted));
    }
    if (std::find(dtypes.begin(), dtypes.end(), view->dtype) == dtypes.end()) {
      return Refuse(name, absl::StrCat("has dtype ", view->dtype, "; ", wanted));
    }
    if (std::find(shapes.begin(), shapes.end(), view->shape) == shapes.end()) {
      return Refuse(name, absl::StrCat("has shape ", ShapeText(view->shape), "; ", wanted));
    }
    return view;
  }

  // Adds a tensor of integers or fp8 codes.
  absl::Status Add(const std::string& suffix, const std::string& dtype, const Shape& shape,
                   const std::byte*& bytes, FiniteRule rule = {0, 0}) {
    const std::string name = absl::StrCat(module_, ".", suffix);
    ASSIGN_OR_RETURN(const TensorView* view, Get(name, {dtype}, {shape}));
    bytes = view->bytes.data();
    found_.parts.push_back({name, view->bytes, std::max<int64_t>(shape.back(), 1), rule});
    return absl::OkStatus();
  }

  absl::Status AddScales(const std::string& suffix, const std::vector<Shape>& shapes) {
    const std::string name = absl::StrCat(module_, ".", suffix);
    ASSIGN_OR_RETURN(const TensorView* view, Get(name, {"F16", "BF16", "F32"}, shapes));
    IsFloatDtype(*view, &found_.tensor.scale_dtype);
    found_.tensor.scales = view->bytes.data();
    const int64_t cols = view->shape.size() == 2 ? std::max<int64_t>(view->shape[1], 1) : 1;
    found_.parts.push_back({name, view->bytes, cols, ScaleRuleOf(found_.tensor.scale_dtype)});
    return absl::OkStatus();
  }

  // compressed-tensors leaves -1 in an index that was never set.
  absl::Status AddGroupIndex(const std::string& suffix, bool may_be_unset) {
    const std::string name = absl::StrCat(module_, ".", suffix);
    QuantizedTensor& t = found_.tensor;
    if (!scheme_.needs_group_index && checkpoint_.Find(name) == nullptr) return absl::OkStatus();
    const std::byte* bytes = nullptr;
    RETURN_IF_ERROR(Add(suffix, "I32", {t.cols}, bytes));
    std::vector<int32_t> index(static_cast<size_t>(t.cols));
    std::memcpy(index.data(), bytes, index.size() * sizeof(int32_t));
    const bool is_unset = std::find(index.begin(), index.end(), -1) != index.end();
    if (may_be_unset && is_unset) return absl::OkStatus();
    for (size_t i = 0; i < index.size(); ++i) {
      if (index[i] >= 0 && index[i] < t.n_groups) continue;
      return Refuse(name, absl::StrFormat("has %d for input %d; there are %d groups", index[i], i,
                                          t.n_groups));
    }
    t.group_index = std::move(index);
    return absl::OkStatus();
  }

  absl::Status CollectTransposed() {
    QuantizedTensor& t = found_.tensor;
    const bool is_awq = t.layout == CodeLayout::kAwq;
    const Shape codes =
        is_awq ? Shape{t.cols, t.rows / per_word_} : Shape{t.cols / per_word_, t.rows};
    RETURN_IF_ERROR(Add("qweight", "I32", codes, t.codes));
    RETURN_IF_ERROR(AddScales("scales", {{t.n_groups, t.rows}}));
    RETURN_IF_ERROR(Add("qzeros", "I32", {t.n_groups, t.rows / per_word_}, t.zeros));
    return is_awq ? absl::OkStatus() : AddGroupIndex("g_idx", false);
  }

  absl::Status CollectPacked() {
    QuantizedTensor& t = found_.tensor;
    RETURN_IF_ERROR(CheckWeightShape());
    RETURN_IF_ERROR(Add("weight_packed", "I32", {t.rows, DivideUp(t.cols, per_word_)}, t.codes));
    RETURN_IF_ERROR(AddScales("weight_scale", ScaleShapes()));
    if (scheme_.has_zeros) {
      RETURN_IF_ERROR(
          Add("weight_zero_point", "I32", {DivideUp(t.rows, per_word_), t.n_groups}, t.zeros));
    }
    return AddGroupIndex("weight_g_idx", true);
  }

  absl::Status CollectBytes() {
    QuantizedTensor& t = found_.tensor;
    const bool is_fp8 = t.layout == CodeLayout::kFp8;
    constexpr FiniteRule kFiniteFp8{1, 0x7f};
    RETURN_IF_ERROR(Add("weight", is_fp8 ? "F8_E4M3" : "I8", {t.rows, t.cols}, t.codes,
                        is_fp8 ? kFiniteFp8 : FiniteRule{0, 0}));
    // Some writers call the scale the inverse, because a weight was divided by it; the stored
    // number is a factor either way.
    const bool is_inverse = checkpoint_.Find(module_ + ".weight_scale_inv") != nullptr;
    RETURN_IF_ERROR(AddScales(is_inverse ? "weight_scale_inv" : "weight_scale", ScaleShapes()));
    if (scheme_.has_zeros) RETURN_IF_ERROR(AddByteZeros());
    return AddGroupIndex("weight_g_idx", true);
  }

  absl::Status AddByteZeros() {
    const std::string name = absl::StrCat(module_, ".weight_zero_point");
    ASSIGN_OR_RETURN(const TensorView* view, Get(name, {"I8"}, ScaleShapes()));
    found_.tensor.zeros = view->bytes.data();
    found_.parts.push_back({name, view->bytes, 1, {0, 0}});
    return absl::OkStatus();
  }

  // A single scale may have zero dimensions or one.
  std::vector<Shape> ScaleShapes() const {
    const QuantizedTensor& t = found_.tensor;
    const Shape shape{DivideUp(t.rows, t.block_rows), t.n_groups};
    if (scheme_.block_rows == 0) return {{}, {1}, shape};
    if (t.n_groups == 1) return {shape, {shape[0]}};
    return {shape};
  }

  // Checks the shape that the writer recorded, because padded words of codes do not determine it.
  absl::Status CheckWeightShape() const {
    const std::string name = absl::StrCat(module_, ".weight_shape");
    if (checkpoint_.Find(name) == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const TensorView* view, Get(name, {"I64"}, {Shape{2}}));
    Shape shape(2);
    std::memcpy(shape.data(), view->bytes.data(), view->bytes.size());
    const Shape wanted{found_.tensor.rows, found_.tensor.cols};
    if (shape == wanted) return absl::OkStatus();
    return Refuse(name, absl::StrFormat("says %s; config.json asks for %s", ShapeText(shape),
                                        ShapeText(wanted)));
  }

  const Checkpoint& checkpoint_;
  const QuantScheme& scheme_;
  const std::string& module_;
  const int64_t per_word_;
  QuantizedParts found_;
};

}  // namespace

FiniteRule FiniteRuleOf(Dtype dtype) {
  if (dtype == Dtype::kFp32) return kFiniteFp32;
  return dtype == Dtype::kFp16 ? kFiniteFp16 : kFiniteBf16;
}

FiniteRule ScaleRuleOf(Dtype dtype) {
  // Below 2^118: the product with any code (at most 448) is within bf16.
  if (dtype == Dtype::kFp32) return {4, 0x7a800000};
  return dtype == Dtype::kFp16 ? kFiniteFp16 : FiniteRule{2, 0x7a80};
}

bool IsFloatDtype(const TensorView& view, Dtype* dtype) {
  const std::pair<std::string_view, Dtype> types[] = {
      {"F32", Dtype::kFp32}, {"F16", Dtype::kFp16}, {"BF16", Dtype::kBf16}};
  for (const auto& [name, type] : types) {
    if (view.dtype != name) continue;
    *dtype = type;
    return true;
  }
  return false;
}

absl::StatusOr<QuantizedParts> FindQuantizedParts(const Checkpoint& checkpoint,
                                                  const QuantScheme& scheme,
                                                  const std::string& module, int64_t rows,
                                                  int64_t cols) {
  return Collector(checkpoint, scheme, module, rows, cols).Collect();
}

}  // namespace baton
