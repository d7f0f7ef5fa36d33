// Safetensors files from outside: valid ones are read; damaged ones and false claims give errors
// with names.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/safetensors.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;

std::string FileWith(std::string_view header, std::string_view data) {
  std::string file(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(file.data(), &size, sizeof(size));
  file += header;
  file += data;
  return file;
}

const std::string kHeader =
    R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"__metadata__":{"format":"pt"}})";
const std::string kData = "0123456789abcdefghijklmnopqrstuv";

std::string ErrorOf(std::string_view content) {
  const TempFolder folder;
  folder.Write("x.safetensors", content);
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(folder.file("x.safetensors"));
  if (file.ok()) return "";
  const std::string error(file.status().message());
  CHECK_THAT(error, Contains("x.safetensors"));
  return error;
}

std::string ErrorOfHeader(std::string_view header) { return ErrorOf(FileWith(header, kData)); }

}  // namespace

TEST_CASE("a good file is read") {
  const TempFolder folder;
  folder.Write("x.safetensors", FileWith(kHeader, kData));
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(folder.file("x.safetensors"));
  REQUIRE(file.ok());
  REQUIRE(file->tensors().size() == 2);
  const TensorView& a = file->tensors().at("a");
  CHECK(a.dtype == "F32");
  CHECK(a.shape == std::vector<int64_t>{2, 3});
  CHECK(std::memcmp(a.bytes.data(), kData.data(), 24) == 0);
  const TensorView& b = file->tensors().at("b");
  CHECK(b.bytes.size() == 8);
  CHECK(std::memcmp(b.bytes.data(), kData.data() + 24, 8) == 0);
}

TEST_CASE("a file cut at any byte is an error") {
  const std::string good = FileWith(kHeader, kData);
  for (size_t n = 0; n < good.size(); ++n) {
    INFO(n);
    CHECK_FALSE(ErrorOf(std::string_view(good).substr(0, n)).empty());
  }
  CHECK_THAT(ErrorOf(good + "x"), Contains("cover 32 of 33"));
}

TEST_CASE("a lying header length is an error") {
  const std::string good = FileWith(kHeader, kData);
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{1}, uint64_t{kHeader.size() - 1}, uint64_t{kHeader.size() + 1},
        uint64_t{good.size() - 8}, uint64_t{good.size()}, uint64_t{1} << 25, uint64_t{1} << 32,
        uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    INFO(length);
    std::string file = good;
    std::memcpy(file.data(), &length, sizeof(length));
    CHECK_FALSE(ErrorOf(file).empty());
  }
}

TEST_CASE("a lying tensor is an error that names it") {
  const auto with_a = [](std::string_view a) {
    return absl::StrCat("{\"a\":", std::string(a),
                        ",\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]}}");
  };
  const std::pair<std::string, std::string> examples[] = {
      {R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,28]})", "need 24 bytes"},
      {R"({"dtype":"F32","shape":[2,4],"data_offsets":[0,24]})", "need 32 bytes"},
      {R"({"dtype":"F16","shape":[2,3],"data_offsets":[0,24]})", "need 12 bytes"},
      {R"({"dtype":"F33","shape":[2,3],"data_offsets":[0,24]})", "unknown dtype \"F33\""},
      {R"({"dtype":4,"shape":[2,3],"data_offsets":[0,24]})", "dtype is missing"},
      {R"({"shape":[2,3],"data_offsets":[0,24]})", "dtype is missing"},
      {R"({"dtype":"F32","shape":[2,-3],"data_offsets":[0,24]})", "shape is missing"},
      {R"({"dtype":"F32","shape":[2,3.5],"data_offsets":[0,24]})", "shape is missing"},
      {R"({"dtype":"F32","shape":"2,3","data_offsets":[0,24]})", "shape is missing"},
      {R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,2,3],"data_offsets":[0,24]})", "up to 8"},
      {R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,24]})", "overflows"},
      {R"({"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,24]})", "overflows"},
      {R"({"dtype":"F32","shape":[2,3]})", "data_offsets is missing"},
      {R"({"dtype":"F32","shape":[2,3],"data_offsets":[0]})", "data_offsets is missing"},
      {R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24,24]})", "data_offsets is missing"},
      {R"({"dtype":"F32","shape":[2,3],"data_offsets":[-24,0]})", "data_offsets is missing"},
      {R"({"dtype":"F32","shape":[2,3],"data_offsets":[24,0]})", "outside"},
      {R"({"dtype":"F32","shape":[2,3],"data_offsets":[16,40]})", "outside"},
      {R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,18446744073709551615]})", "data_offsets"},
      {R"([])", "not an object"},
      {R"(null)", "not an object"},
  };
  for (const auto& [a, error] : examples) {
    INFO(a);
    const std::string found = ErrorOfHeader(with_a(a));
    CHECK_THAT(found, Contains(error));
    CHECK_THAT(found, Contains("tensor \"a\""));
  }
}

TEST_CASE("holes and overlaps are errors") {
  CHECK_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},)"
                           R"("b":{"dtype":"U8","shape":[20],"data_offsets":[12,32]}})"),
             Contains("overlap"));
  CHECK_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                           R"("b":{"dtype":"U8","shape":[20],"data_offsets":[12,32]}})"),
             Contains("hole"));
  CHECK_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[31],"data_offsets":[0,31]}})"),
             Contains("cover 31 of 32"));
  // A name that comes twice: one tensor is dropped, and its bytes become a hole.
  CHECK_FALSE(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},)"
                            R"("a":{"dtype":"U8","shape":[16],"data_offsets":[16,32]}})")
                  .empty());
}

TEST_CASE("random damage is an error or harmless, never a view outside the file") {
  const TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  std::mt19937 random(11);
  int n_errors = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string file = FileWith(kHeader, kData);
    for (int i = 0; i < 1 + round % 3; ++i) {
      file[random() % (8 + kHeader.size())] = static_cast<char>(random());
    }
    folder.Write("x.safetensors", file);
    const absl::StatusOr<SafetensorsFile> opened = SafetensorsFile::Open(path);
    n_errors += !opened.ok();
    if (!opened.ok()) continue;
    const std::span<const std::byte> all = opened->file().bytes();
    for (const auto& [name, view] : opened->tensors()) {
      CHECK(view.bytes.data() >= all.data() + 8 + opened->header().size());
      CHECK(view.bytes.data() + view.bytes.size() <= all.data() + all.size());
    }
  }
  CHECK(n_errors > 2000);
}

TEST_CASE("several files are found by their index") {
  const TempFolder folder;
  const auto error = [&] {
    return std::string(Checkpoint::Open(folder.path()).status().message());
  };
  CHECK_THAT(error(), Contains("convert the checkpoint to safetensors"));

  const auto one = [](std::string_view name) {
    return FileWith(absl::StrCat("{\"", std::string(name),
                                 "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"),
                    "data");
  };
  folder.Write("m1.safetensors", one("a"));
  folder.Write("m2.safetensors", one("b"));
  folder.Write("model.safetensors.index.json",
               R"({"metadata":{},"weight_map":{"a":"m1.safetensors","b":"m2.safetensors"}})");
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  REQUIRE(checkpoint.ok());
  CHECK(checkpoint->files().size() == 2);
  CHECK(checkpoint->Find("a") != nullptr);
  CHECK(checkpoint->Find("b") != nullptr);
  CHECK(checkpoint->Find("c") == nullptr);

  folder.Write("m2.safetensors", one("a"));
  CHECK_THAT(error(), Contains("tensor \"a\" is in m2.safetensors and in a file before it"));
  std::filesystem::remove(folder.file("m2.safetensors"));
  CHECK_THAT(error(), Contains("m2.safetensors: cannot open"));
  for (const std::string map : {"7", "{}", R"({"a":7})", R"({"a":"../m1.safetensors"})",
                                R"({"a":"/etc/passwd"})", R"({"a":""})", R"({"a":".."})"}) {
    folder.Write("model.safetensors.index.json", absl::StrCat("{\"weight_map\":", map, "}"));
    INFO(map);
    CHECK_THAT(error(), Contains("model.safetensors.index.json: weight_map"));
  }
}

TEST_CASE("a folder or device is no checkpoint file") {
  const TempFolder folder;
  std::filesystem::create_directory(folder.file("model.safetensors"));
  CHECK_FALSE(Checkpoint::Open(folder.path()).ok());
  CHECK_FALSE(SafetensorsFile::Open("/dev/null").ok());
}

}  // namespace baton
