// Measurements of the check program: a JSON line each, written at once, so that a part that dies
// has lost nothing. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace baton {

enum class Verdict { kInfo, kPass, kWarn, kFail, kSkip };

struct Measurement {
  std::string part;   // "S1.a"
  std::string name;   // what was measured or compared
  std::string shape;  // of what; empty: of nothing
  double value = 0;
  std::string unit;
  Verdict verdict = Verdict::kInfo;
  std::string note = {};  // reason, first difference, configuration
};

class Report {
 public:
  // `file`: where lines go, flushed one by one; it outlives the report.
  explicit Report(std::FILE* file) : file_(file) {}

  void Add(const Measurement& measurement);
  // A comparison that must find nothing: passes at 0.
  void AddDifferences(const std::string& part, const std::string& name, const std::string& shape,
                      uint64_t differing, const std::string& note = {});
  bool has_failed() const { return has_failed_; }

 private:
  std::FILE* file_;
  bool has_failed_ = false;
};

std::string LineOf(const Measurement& measurement);

}  // namespace baton
