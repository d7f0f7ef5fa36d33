// The entry points of libFuzzer (llvm.org/docs/LibFuzzer.html). `TARGET --seeds FOLDER` writes the
// seeds: FOLDER/inputs, and FOLDER/words for the option -dict.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "tests/fuzz/fuzz_target.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

bool Write(const fs::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return out.good();
}

int WriteSeeds(const fs::path& folder) {
  const FuzzSeeds seeds = MakeSeeds();
  fs::remove_all(folder);
  fs::create_directories(folder / "inputs");
  bool is_written = true;
  size_t index = 0;
  for (const std::string& input : seeds.inputs)
    is_written &= Write(folder / "inputs" / absl::StrCat(index++), input);
  std::string words;
  for (const std::string& word : seeds.words) {
    std::string escaped;  // libFuzzer reads \xAB alone for what is not plain
    for (const char c : word) {
      const bool is_plain = c > ' ' && c <= '~' && c != '"' && c != '\\';
      if (is_plain) {
        escaped += c;
      } else {
        absl::StrAppendFormat(&escaped, "\\x%02X", static_cast<unsigned char>(c));
      }
    }
    if (!escaped.empty()) absl::StrAppend(&words, "\"", escaped, "\"\n");
  }
  is_written &= Write(folder / "words", words);
  if (!is_written) std::fprintf(stderr, "%s: cannot be written\n", folder.c_str());
  return is_written ? 0 : 1;
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  baton::SetLog(baton::LogLevel::kError, "fuzz");
  if (*argc == 3 && std::string_view((*argv)[1]) == "--seeds")
    std::exit(baton::WriteSeeds((*argv)[2]));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::TryInput({reinterpret_cast<const char*>(data), size});
  return 0;
}
