// Shows how far a long command is: a bar on a terminal, elsewhere a plain line every few seconds.
// One thread.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/progress_line.h"

namespace baton {

class ProgressBar {
 public:
  // out: where the bar goes, which outlives it. Whether `out` is a terminal is asked once.
  ProgressBar(std::string what, ProgressUnit unit, double total, std::FILE* out = stderr);
  ProgressBar(std::string what, ProgressUnit unit, double total, std::FILE* out, bool is_terminal);
  ~ProgressBar() { Finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void SetTotal(double total) { line_.SetTotal(total); }
  void AddToTotal(double more) { line_.SetTotal(line_.total() + more); }
  void Show(double done, std::string_view part = "");  // part: what is being done, on a bar only
  void Next(std::string_view part);    // kParts: `part` begins, all before it are done
  void Note(const std::string& line);  // a whole line, above the bar
  void Finish();                       // removes the bar; Show may bring it back

 private:
  void Clear();
  std::FILE* const out_;
  const bool is_terminal_;
  ProgressLine line_;
  absl::Time last_shown_;  // of a bar or a plain line
  int parts_begun_ = 0;
  std::string bar_;
};

}  // namespace baton
