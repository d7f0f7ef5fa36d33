#include "server/process/partition_file.h"

#include <catch2/catch.hpp>

#include "tests/support/temp_folder.h"

namespace baton {
namespace {

TEST_CASE("a file of baton tune that is absent, too long or wrong is an error that names it") {
  const TempFolder folder;
  const std::string path = folder.file("tuned.yaml");
  const auto error = [&] {
    const auto table = ReadPartitionFile(path);
    REQUIRE_FALSE(table.ok());
    return std::string(table.status().message());
  };
  CHECK(error() == path + ": no such file; baton tune MODEL --out FILE writes one");
  folder.Write("tuned.yaml", std::string((1 << 20) + 1, ' '));
  CHECK(error() == path + ": longer than the 1048576 bytes such a file may have");
  folder.Write("tuned.yaml", "[]");
  CHECK(error().starts_with(path));
}

}  // namespace
}  // namespace baton
