#include "server/http/trace_context.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// version-trace-parent-flags, in lower-case hexadecimal: where each begins.
constexpr size_t kSize = 55, kTrace = 3, kParent = 36, kFlags = 53;

bool IsZero(std::string_view digits) { return digits.find_first_not_of('0') == digits.npos; }

// The flags' last bit.
bool IsOdd(char digit) {
  const int value = digit <= '9' ? digit - '0' : digit - 'a' + 10;
  return value % 2 == 1;
}

}  // namespace

TraceContext ReadTraceparent(std::string_view header) {
  if (header.size() < kSize || header.substr(0, 2) == "ff") return {};
  // Only a version after 00 may have more.
  if (header.size() > kSize && (header.starts_with("00") || header[kSize] != '-')) return {};
  for (size_t i = 0; i < kSize; ++i) {
    const char c = header[i];
    const bool is_dash = i + 1 == kTrace || i + 1 == kParent || i + 1 == kFlags;
    const bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (is_dash ? c != '-' : !is_hex) return {};
  }
  const std::string_view trace = header.substr(kTrace, kParent - 1 - kTrace);
  const std::string_view parent = header.substr(kParent, kFlags - 1 - kParent);
  if (IsZero(trace) || IsZero(parent)) return {};
  return {.trace_id = std::string(trace),
          .parent_id = std::string(parent),
          .is_sampled = IsOdd(header[kSize - 1])};
}

std::string TraceContext::log_text() const {
  if (!is_known()) return "";
  const std::string& span = span_id.empty() ? parent_id : span_id;
  return span.empty() ? trace_id : absl::StrCat(trace_id, "-", span);
}

std::string TraceContext::response() const {
  if (span_id.empty()) return "";
  return absl::StrCat("00-", trace_id, "-", span_id, is_sampled ? "-01" : "-00");
}

}  // namespace baton
