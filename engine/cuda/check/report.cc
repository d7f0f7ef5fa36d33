#include "engine/cuda/check/report.h"

#include <cmath>

namespace baton {
namespace {

const char* NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kInfo:
      return "INFO";
    case Verdict::kPass:
      return "PASS";
    case Verdict::kWarn:
      return "WARN";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kSkip:
      return "SKIP";
  }
  return "FAIL";
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + '"';
}

}  // namespace

std::string LineOf(const Measurement& measurement) {
  char value[40] = "null";  // JSON has no infinities
  if (std::isfinite(measurement.value))
    std::snprintf(value, sizeof value, "%.7g", measurement.value);
  return "{\"part\":" + Quoted(measurement.part) + ",\"name\":" + Quoted(measurement.name) +
         ",\"shape\":" + Quoted(measurement.shape) + ",\"value\":" + value +
         ",\"unit\":" + Quoted(measurement.unit) +
         ",\"verdict\":" + Quoted(NameOf(measurement.verdict)) +
         ",\"note\":" + Quoted(measurement.note) + "}";
}

void Report::Add(const Measurement& measurement) {
  has_failed_ = has_failed_ || measurement.verdict == Verdict::kFail;
  std::fprintf(file_, "%s\n", LineOf(measurement).c_str());
  std::fflush(file_);
}

void Report::AddDifferences(const std::string& part, const std::string& name,
                            const std::string& shape, uint64_t differing, const std::string& note) {
  Add({part, name, shape, static_cast<double>(differing), "differing",
       differing == 0 ? Verdict::kPass : Verdict::kFail, note});
}

}  // namespace baton
