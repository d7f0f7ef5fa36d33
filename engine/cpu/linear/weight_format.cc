#include "engine/cpu/linear/weight_format.h"

#include "absl/strings/str_cat.h"

namespace baton {

std::string WeightFormat::Name() const {
  switch (type) {
    case WeightType::kBf16:
      return "bf16";
    case WeightType::kInt8:
      return "int8";
    case WeightType::kInt4:
      return absl::StrCat("int4g", group);
  }
  return "unknown";
}

int64_t WeightFormat::KPadded(int64_t k) const {
  switch (type) {
    case WeightType::kBf16:
      return RoundUp(k, 32);
    case WeightType::kInt8:
      return RoundUp(k, 64);
    case WeightType::kInt4:
      return RoundUp(k, group);
  }
  return k;
}

int64_t WeightFormat::GroupBytes(int64_t k) const {
  constexpr int64_t kScales = 64;
  switch (type) {
    case WeightType::kBf16:
      return KPadded(k) * 32;
    case WeightType::kInt8:
      return kScales + KPadded(k) * 16;
    case WeightType::kInt4:
      return kScales + group * 8;
  }
  return 0;
}

}  // namespace baton
