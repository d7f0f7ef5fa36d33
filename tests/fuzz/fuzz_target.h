// A fuzz target: a program that tries inputs which libFuzzer makes (fuzz_main.cc). Each target's
// file defines the two functions below. Inputs are tried by one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton {

struct FuzzSeeds {
  std::vector<std::string> inputs;  // from which libFuzzer goes on
  std::vector<std::string> words;   // that libFuzzer puts into inputs
};

// Tries an input. A broken promise is a BATON_CHECK, which ends the process.
void TryInput(std::string_view input);
// Makes the seeds from data of the repository. Called instead of TryInput, never beside it.
FuzzSeeds MakeSeeds();

}  // namespace baton
