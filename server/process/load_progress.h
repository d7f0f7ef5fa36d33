// Shows the loading of models: a bar on a terminal, a plain line every few seconds elsewhere.
// Writes to stdout. One thread.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace baton {

class LoadProgress {
 public:
  explicit LoadProgress(bool is_terminal);
  void Show(double fraction);          // 0 to 1
  void Note(const std::string& line);  // a whole line, above the bar
  void Finish();                       // removes the bar

 private:
  void Clear();
  const bool is_terminal_;
  const absl::Time start_;
  absl::Time last_line_;
  std::string bar_;
};

}  // namespace baton
