// The entry points of libFuzzer (llvm.org/docs/LibFuzzer.html). `TARGET --seeds FOLDER/TARGET`
// writes the seeds: inputs, those of tests/fuzz/corpus/TARGET.txt among them, and words for the
// option -dict. `TARGET --pack FOLDER FILE` writes such a corpus of the inputs in FOLDER.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
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

constexpr size_t kMaxCorpus = 64 << 10;  // bytes of a corpus in the repository

// The inputs of a corpus, one per line; none without a file.
void AddCorpus(const fs::path& file, std::vector<std::string>* inputs) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    BATON_CHECK(absl::Base64Unescape(line, &inputs->emplace_back()));
}

// Shorter inputs first, as many as have room.
int Pack(const fs::path& folder, const fs::path& file) {
  std::vector<std::string> inputs;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  std::sort(inputs.begin(), inputs.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  std::string lines;
  size_t n_kept = 0;
  for (const std::string& input : inputs) {
    const std::string line = absl::StrCat(absl::Base64Escape(input), "\n");
    if (lines.size() + line.size() > kMaxCorpus) break;
    lines += line;
    ++n_kept;
  }
  std::printf("%s: %zu of %zu inputs, %zu bytes\n", file.c_str(), n_kept, inputs.size(),
              lines.size());
  return Write(file, lines) ? 0 : 1;
}

int WriteSeeds(const fs::path& folder) {
  FuzzSeeds seeds = MakeSeeds();
  AddCorpus(
      fs::path(BATON_SOURCE_DIR) / "tests/fuzz/corpus" / (folder.filename().string() + ".txt"),
      &seeds.inputs);
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
  if (*argc == 4 && std::string_view((*argv)[1]) == "--pack")
    std::exit(baton::Pack((*argv)[2], (*argv)[3]));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::TryInput({reinterpret_cast<const char*>(data), size});
  return 0;
}
