// Writes small checkpoints in safetensors format, tensor by tensor.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/weight_source.h"
#include "tests/support/temp_folder.h"

namespace baton {

// One tensor of a file.
struct FileTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

using FileTensors = std::map<std::string, FileTensor>;

inline FileTensor Fp32Tensor(std::vector<int64_t> shape, const std::vector<float>& values) {
  return {"F32", std::move(shape), BytesOf(values)};
}

inline std::string SafetensorsText(const FileTensors& tensors) {
  std::string header, data;
  for (const auto& [name, tensor] : tensors) {
    header += absl::StrFormat(R"(%s"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]})",
                              header.empty() ? "{" : ",", name, tensor.dtype,
                              absl::StrJoin(tensor.shape, ","), data.size(),
                              data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  header += "}";
  std::string length(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(length.data(), &size, sizeof(size));
  return length + header + data;
}

inline void WriteCheckpoint(const TempFolder& folder, const std::string& config,
                            const FileTensors& tensors) {
  folder.Write("config.json", config);
  folder.Write("model.safetensors", SafetensorsText(tensors));
}

// Returns the tensors of a model with random weights, by their published names, as in an fp32
// checkpoint.
inline FileTensors RandomCheckpoint(const std::string& config_path, uint64_t seed) {
  const std::string model = "random:" + config_path;
  const ModelDesc desc = *ReadModelDesc(model);
  const auto source = *OpenWeightSource(model, desc, seed);
  std::map<std::string, std::vector<float>> values;
  FileTensors tensors;
  for (const TensorSpec& spec : source->tensors()) {
    std::vector<float>& stored = values[spec.stored_name];
    stored.resize(static_cast<size_t>(spec.stored_rows * spec.cols));
    int64_t row = 0;
    for (const RowRange& range : spec.stored_ranges) {
      source->ReadFp32(source->IndexOf(spec.name), row, range.count,
                       stored.data() + range.first * spec.cols);
      row += range.count;
    }
    std::vector<int64_t> shape{spec.stored_rows};
    if (!spec.is_vector) shape.push_back(spec.cols);
    tensors[spec.stored_name] = Fp32Tensor(shape, stored);
  }
  return tensors;
}

inline std::string ReadFileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace baton
