// Three entries of packed weights with known bytes, and how they are loaded.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/weights_file.h"

namespace baton {

inline constexpr uint64_t kKey = 0x1234;
inline constexpr uint64_t kFingerprint = 0xabcdef;

inline const std::vector<WeightsEntry> kEntries{
    {"first", 100, 0, 400}, {"second", 16, 32, 1024}, {"third", 5000, 0, 20000}};

inline std::string CacheFile(const std::string& folder) {
  return folder + "/0000000000001234.btnw";
}

// Loads three entries with known bytes; counts how often they were built.
struct Loaded {
  std::unique_ptr<WeightsFile> file;
  int fills = 0;
};

inline Loaded Load(const CacheOptions& cache) {
  Loaded loaded;
  ComputePool pool(1, 0);
  absl::StatusOr<std::unique_ptr<WeightsFile>> file =
      WeightsFile::Load(kEntries, kKey, cache, pool, [&](std::span<std::byte* const> data) {
        ++loaded.fills;
        for (size_t i = 0; i < kEntries.size(); ++i) {
          std::memset(data[i], static_cast<int>(i + 1), static_cast<size_t>(kEntries[i].bytes));
        }
        return kFingerprint;
      });
  REQUIRE(file.ok());
  loaded.file = *std::move(file);
  return loaded;
}

inline Loaded Load(const std::string& path) {
  CacheOptions cache;
  cache.path = path;
  return Load(cache);
}

inline bool IsIntact(const WeightsFile& file) {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    for (int64_t b = 0; b < kEntries[i].bytes; ++b) {
      if (file.entry(static_cast<int>(i))[b] != static_cast<std::byte>(i + 1)) return false;
    }
  }
  return file.fingerprint() == kFingerprint;
}

}  // namespace baton
