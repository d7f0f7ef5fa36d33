// `baton bench ...` on the command line: flags of each benchmark, and the one that was chosen.
// Start of a process, one thread.
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

  // Adds the benchmarks to `bench`, which outlives this object. Called once, before parsing.
  void Declare(CLI::App* bench);
  // Sets what the parsed command line gave of settings that `serve` has, too. InvalidArgument names
  // flag, value and what is allowed, or the model that is missing.
  absl::Status Apply();
  // Returns the error for a word of a `bench` command line that no command or flag takes. It names
  // the nearest known word, or all benchmarks.
  absl::Status UnknownArgument(const std::string& word) const;
  // A function that runs the benchmark of the parsed command line and returns its exit status; may
  // outlive this object. Empty: no benchmark is named.
  std::function<int()> Chosen() const;
  std::string Help() const;  // of all benchmarks, or of the one on the line that has a page

 private:
  struct State;
  std::shared_ptr<State> state_;  // Chosen keeps it
};

}  // namespace baton
