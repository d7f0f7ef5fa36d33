#include "server/api/text_speed.h"

#include <algorithm>
#include <limits>
#include <string>

#include "common/clock.h"

namespace baton {

int64_t TextBytesWithin(const ServedModel& model, absl::Duration limit) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (model.tokenizer == nullptr) return kMax;
  // Words of several lengths, digits and signs: tokenizers look for merges in each word again.
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += "The quick brown fox, born in " + std::to_string(1900 + i) +
            ", extraordinarily jumps over 3.5 lazy dogs (again).\n";
  absl::Duration fastest = absl::InfiniteDuration();
  for (int run = 0; run < 3; ++run) {
    const absl::Time begin = MonotonicNow();
    if (!model.tokenizer->Encode(text, /*add_special_tokens=*/false).ok()) return 0;
    fastest = std::min(fastest, MonotonicNow() - begin);
  }
  const double share = absl::FDivDuration(limit, std::max(fastest, absl::Nanoseconds(1)));
  return static_cast<int64_t>(
      std::min(share * static_cast<double>(text.size()), static_cast<double>(kMax)));
}

int64_t InlineTextBytes(int64_t wanted, const ServedModel& model) {
  return std::min(wanted, TextBytesWithin(model, absl::Microseconds(500)));
}

}  // namespace baton
