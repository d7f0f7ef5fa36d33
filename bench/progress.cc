#include "bench/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace baton {

Progress::Progress(size_t total) : total_(std::max<size_t>(total, 1)), is_terminal_(::isatty(2)) {}

Progress::~Progress() {
  if (is_terminal_) std::fprintf(stderr, "\r\033[K");
}

void Progress::Next(const std::string& name) {
  if (is_terminal_) {
    const std::string bar(std::min(done_, total_) * 20 / total_, '#');
    std::fprintf(stderr, "\r\033[K[%-20s] %s", bar.c_str(), name.c_str());
  }
  ++done_;
}

}  // namespace baton
