// Shows the progress of a long benchmark: one line on stderr that is overwritten, on a terminal
// only.
#pragma once

#include <cstddef>
#include <string>

namespace baton {

class Progress {
 public:
  explicit Progress(size_t total);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Next(const std::string& name);  // name: the part that begins now

 private:
  size_t total_, done_ = 0;
  bool is_terminal_;
};

}  // namespace baton
