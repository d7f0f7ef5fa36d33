// GGUF files for tests, good ones and broken ones, byte by byte.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton {

class GgufBytes {
 public:
  template <typename T>
  GgufBytes& Add(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& AddText(std::string_view text) {
    Add<uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A file of metadata values and tensors, any part of which a test may replace before Bytes().
struct GgufWriter {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // the innermost first
    uint32_t type = 0;
    uint64_t offset = 0;
    std::string data;
  };
  uint32_t version = 3;
  uint64_t alignment = 32;
  std::vector<std::pair<std::string, std::string>> values;  // key; type and value as bytes
  std::vector<Tensor> tensors;
  int64_t more_values = 0, more_tensors = 0;  // claimed in the header beyond the real number

  static std::string Int(uint32_t value) {
    return GgufBytes().Add<uint32_t>(4).Add<uint32_t>(value).bytes();
  }
  static std::string Float(float value) {
    return GgufBytes().Add<uint32_t>(6).Add<float>(value).bytes();
  }
  static std::string Bool(bool value) {
    return GgufBytes().Add<uint32_t>(7).Add<uint8_t>(value ? 1 : 0).bytes();
  }
  static std::string Text(std::string_view value) {
    return GgufBytes().Add<uint32_t>(8).AddText(value).bytes();
  }
  static std::string Array(uint32_t type, uint64_t count, const std::string& bytes) {
    return GgufBytes().Add<uint32_t>(9).Add<uint32_t>(type).Add<uint64_t>(count).bytes() + bytes;
  }
  static std::string Texts(const std::vector<std::string>& texts) {
    GgufBytes bytes;
    for (const std::string& text : texts) bytes.AddText(text);
    return Array(8, texts.size(), bytes.bytes());
  }
  template <typename T>
  static std::string Numbers(uint32_t type, const std::vector<T>& numbers) {
    GgufBytes bytes;
    for (const T number : numbers) bytes.Add(number);
    return Array(type, numbers.size(), bytes.bytes());
  }

  // Replaces or adds a value; an empty value removes it.
  void Set(const std::string& key, const std::string& value) {
    std::erase_if(values, [&](const auto& entry) { return entry.first == key; });
    if (!value.empty()) values.emplace_back(key, value);
  }
  // Adds a tensor behind the others.
  Tensor& AddTensor(const std::string& name, std::vector<uint64_t> dims, uint32_t type,
                    std::string data) {
    const uint64_t offset =
        tensors.empty() ? 0 : Aligned(tensors.back().offset + tensors.back().data.size());
    return tensors.emplace_back(Tensor{name, std::move(dims), type, offset, std::move(data)});
  }
  Tensor& AddFloats(const std::string& name, std::vector<uint64_t> dims, float value) {
    uint64_t n = 1;
    for (const uint64_t dim : dims) n *= dim;
    GgufBytes data;
    for (uint64_t i = 0; i < n; ++i) data.Add<float>(value);
    return AddTensor(name, std::move(dims), 0, data.bytes());
  }

  std::string Bytes() const {
    GgufBytes head;
    head.Add<uint32_t>(0x46554747).Add<uint32_t>(version);
    head.Add<uint64_t>(tensors.size() + static_cast<uint64_t>(more_tensors));
    head.Add<uint64_t>(values.size() + static_cast<uint64_t>(more_values));
    std::string bytes = head.bytes();
    for (const auto& [key, value] : values) bytes += GgufBytes().AddText(key).bytes() + value;
    for (const Tensor& tensor : tensors) {
      GgufBytes info;
      info.AddText(tensor.name).Add<uint32_t>(static_cast<uint32_t>(tensor.dims.size()));
      for (const uint64_t dim : tensor.dims) info.Add<uint64_t>(dim);
      bytes += info.Add<uint32_t>(tensor.type).Add<uint64_t>(tensor.offset).bytes();
    }
    for (const Tensor& tensor : tensors) {
      bytes.resize(Aligned(bytes.size()));
      bytes += tensor.data;
    }
    return bytes;
  }
  uint64_t Aligned(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }
};

// A whole small model: one layer, 64 wide, one head, vocabulary of 8.
inline GgufWriter SmallGguf(const std::string& architecture = "llama") {
  GgufWriter writer;
  const auto set = [&](const std::string& key, const std::string& value) {
    writer.Set(architecture + "." + key, value);
  };
  writer.Set("general.architecture", GgufWriter::Text(architecture));
  set("block_count", GgufWriter::Int(1));
  set("context_length", GgufWriter::Int(128));
  set("embedding_length", GgufWriter::Int(64));
  set("feed_forward_length", GgufWriter::Int(96));
  set("attention.head_count", GgufWriter::Int(2));
  set("attention.layer_norm_rms_epsilon", GgufWriter::Float(1e-5f));
  writer.AddFloats("token_embd.weight", {64, 8}, 0.5f);
  writer.AddFloats("blk.0.attn_norm.weight", {64}, 1);
  for (const std::string name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    writer.AddFloats("blk.0." + name + ".weight", {64, 64}, 0.1f);
    const bool has_bias = architecture == "qwen2" && name != "attn_output";
    if (has_bias) writer.AddFloats("blk.0." + name + ".bias", {64}, 0.1f);
  }
  if (architecture == "qwen3") {
    writer.AddFloats("blk.0.attn_q_norm.weight", {32}, 1);
    writer.AddFloats("blk.0.attn_k_norm.weight", {32}, 1);
  }
  writer.AddFloats("blk.0.ffn_norm.weight", {64}, 1);
  writer.AddFloats("blk.0.ffn_gate.weight", {64, 96}, 0.1f);
  writer.AddFloats("blk.0.ffn_up.weight", {64, 96}, 0.1f);
  writer.AddFloats("blk.0.ffn_down.weight", {96, 64}, 0.1f);
  writer.AddFloats("output_norm.weight", {64}, 1);
  return writer;
}

}  // namespace baton
