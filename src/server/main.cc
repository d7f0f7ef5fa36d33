#include <cstdio>
#include <string>
#include <vector>

#include "server/command_line.h"

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "baton: %s\n", std::string(status.message()).c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using baton::Command;
  auto line = baton::ParseCommandLine({argv + 1, argv + argc});
  if (!line.ok()) return Fail(line.status());
  switch ((*line)->command) {
    case Command::kPrint:
      std::fputs((*line)->text.c_str(), stdout);
      return 0;
    case Command::kConfig:
      std::fputs((*line)->settings.Resolved().c_str(), stdout);
      return 0;
    case Command::kBenchLoad:
      return baton::RunLoadBench((*line)->load_bench);
    default:
      return Fail(absl::UnimplementedError("this command is not linked in yet"));
  }
}
