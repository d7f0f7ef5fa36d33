// `baton bench ...` on the command line: flags of each benchmark, and the one that was chosen.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/status.h"

namespace CLI {
class App;
}

namespace baton {

class BenchCommandLine {
 public:
  BenchCommandLine();
  ~BenchCommandLine();

  void Declare(CLI::App* bench);
  // Sets what the parsed command line gave of settings that `serve` has, too.
  absl::Status Apply();
  // Returns the error for a word of a `bench` command line that no command or flag takes. It names
  // the nearest known word, or all benchmarks.
  absl::Status UnknownArgument(const std::string& word) const;
  // Runs the benchmark the parsed command line names; returns its exit status. Empty: none named.
  std::function<int()> Chosen() const;
  static std::string Help();

 private:
  struct State;
  std::shared_ptr<State> state_;  // Chosen keeps it
};

}  // namespace baton
