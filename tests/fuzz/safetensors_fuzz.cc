// Checkpoints in safetensors format that nobody vouches for: files, their index, quantised tensors,
// and config.json. What opens lies inside the files, and all of it can be read.
#include <boost/json.hpp>
#include <cstring>
#include <map>
#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/safetensors.h"
#include "tests/fuzz/file_text.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_folder.h"
#include "tests/fuzz/stored_values.h"

namespace baton {
namespace {

// The ways to read an input.
enum Form { kFile, kText, kIndex, kQuantized, kModel, kForms };

constexpr char kFileName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr int64_t kRows = 8, kCols = 16;  // of a quantised matrix

const ScratchFolder& Folder() {
  static const ScratchFolder folder;
  return folder;
}

// A file with that header, whose length is right.
std::string FileOf(std::string_view header, std::string_view data) {
  std::string length(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(length.data(), &size, sizeof(size));
  return length + std::string(header) + std::string(data);
}

std::map<std::string, int64_t> ElementBytes() {
  return {{"F64", 8}, {"I64", 8},  {"U64", 8},  {"F32", 4},     {"I32", 4},
          {"U32", 4}, {"BF16", 2}, {"F16", 2},  {"I16", 2},     {"U16", 2},
          {"I8", 1},  {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
}

// The tensors cover what follows the header, each byte once.
void CheckFile(const SafetensorsFile& file) {
  static const std::map<std::string, int64_t> kElementBytes = ElementBytes();
  const std::span<const std::byte> all = file.file().bytes();
  std::vector<bool> is_covered(all.size() - 8 - file.header().size());
  const std::byte* const begin = all.data() + all.size() - is_covered.size();
  for (const auto& [name, tensor] : file.tensors()) {
    int64_t bytes = kElementBytes.at(tensor.dtype);
    for (const int64_t size : tensor.shape)
      BATON_CHECK(!__builtin_mul_overflow(bytes, size, &bytes));
    BATON_CHECK(bytes == static_cast<int64_t>(tensor.bytes.size()));
    for (size_t i = 0; i < tensor.bytes.size(); ++i) {
      const auto at = static_cast<size_t>(tensor.bytes.data() - begin) + i;
      BATON_CHECK(at < is_covered.size() && !is_covered[at]);
      is_covered[at] = true;
    }
  }
  BATON_CHECK(std::find(is_covered.begin(), is_covered.end(), false) == is_covered.end());
}

void CheckStatus(const absl::Status& status) {
  BATON_CHECK(absl::IsInvalidArgument(status) || absl::IsNotFound(status));
  BATON_CHECK(status.message().find(Folder().path()) != std::string_view::npos);
}

const std::vector<QuantizationDesc>& Schemes() {
  static const auto* const schemes = new std::vector<QuantizationDesc>{
      {{{.layout = CodeLayout::kGptq, .bits = 4, .group = 8, .zeros_less_one = true}}},
      {{{.layout = CodeLayout::kGptq, .bits = 8, .needs_group_index = true}}},
      {{{.layout = CodeLayout::kAwq, .bits = 4, .group = 16}}},
      {{{.layout = CodeLayout::kPacked, .bits = 4, .group = 8, .has_zeros = true}}},
      {{{.layout = CodeLayout::kPacked, .bits = 2, .needs_group_index = true}}},
      {{{.layout = CodeLayout::kInt8, .bits = 8, .group = 4, .has_zeros = true}}},
      {{{.layout = CodeLayout::kInt8, .bits = 8, .block_rows = 0}}},
      {{{.layout = CodeLayout::kFp8, .bits = 8, .block_rows = 4, .group = 8}}},
  };
  return *schemes;
}

void TryCheckpoint(const QuantizationDesc& quantization) {
  const auto checkpoint = Checkpoint::Open(Folder().path());
  if (!checkpoint.ok()) return CheckStatus(checkpoint.status());
  std::map<std::string, std::vector<int64_t>> shapes;
  if (!quantization.schemes.empty()) shapes["m.weight"] = {kRows, kCols};
  for (const SafetensorsFile& file : checkpoint->files()) {
    CheckFile(file);
    for (const auto& [name, view] : file.tensors()) {
      BATON_CHECK(checkpoint->Find(name) == &view);
      if (quantization.schemes.empty() && shapes.size() < 16) shapes[name] = view.shape;
    }
  }
  for (const auto& [name, shape] : shapes) {
    if (!IsRead(shape)) continue;
    const auto tensor = StoredTensor::Open(*checkpoint, quantization, name, shape);
    if (tensor.ok()) {
      ReadAll(*tensor, shape);
    } else {
      CheckStatus(tensor.status());
    }
  }
}

// ---- seeds ----

struct SeedTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
};

// Header and data, with a NUL between them. Values are small, and finite as floats of any kind.
std::string TextOf(const std::vector<SeedTensor>& tensors) {
  std::string header, data;
  for (const SeedTensor& tensor : tensors) {
    int64_t bytes = ElementBytes().at(tensor.dtype);
    for (const int64_t size : tensor.shape) bytes *= size;
    absl::StrAppend(&header, header.empty() ? "{" : ",", "\"", tensor.name, R"(":{"dtype":")",
                    tensor.dtype, R"(","shape":[)", absl::StrJoin(tensor.shape, ","),
                    R"(],"data_offsets":[)", data.size(), ",",
                    data.size() + static_cast<size_t>(bytes), "]}");
    for (int64_t i = 0; i < bytes; ++i)
      data += static_cast<char>(tensor.dtype[0] == 'I' ? 0 : i % 2 == 0 ? i : 0x3c);
  }
  return header + "}" + '\0' + data;
}

std::vector<SeedTensor> Quantized(size_t scheme) {
  const int64_t r = kRows, c = kCols;
  switch (scheme) {
    case 0:
      return {{"m.qweight", "I32", {c / 8, r}},
              {"m.scales", "F16", {c / 8, r}},
              {"m.qzeros", "I32", {c / 8, r / 8}}};
    case 1:
      return {{"m.qweight", "I32", {c / 4, r}},
              {"m.scales", "BF16", {1, r}},
              {"m.qzeros", "I32", {1, r / 4}},
              {"m.g_idx", "I32", {c}}};
    case 2:
      return {{"m.qweight", "I32", {c, r / 8}},
              {"m.scales", "F16", {1, r}},
              {"m.qzeros", "I32", {1, r / 8}}};
    case 3:
      return {{"m.weight_packed", "I32", {r, c / 8}},
              {"m.weight_scale", "F32", {r, 2}},
              {"m.weight_zero_point", "I32", {1, 2}}};
    case 4:
      return {{"m.weight_packed", "I32", {r, 1}},
              {"m.weight_scale", "BF16", {r, 1}},
              {"m.weight_g_idx", "I32", {c}}};
    case 5:
      return {{"m.weight", "I8", {r, c}},
              {"m.weight_scale", "F32", {r, 4}},
              {"m.weight_zero_point", "I8", {r, 4}}};
    case 6:
      return {{"m.weight", "I8", {r, c}}, {"m.weight_scale", "F32", {1}}};
    default:
      return {{"m.weight", "F8_E4M3", {r, c}}, {"m.weight_scale_inv", "F32", {2, 2}}};
  }
}

// A model of one layer, small enough that a change of a byte matters.
constexpr char kConfig[] = R"({"architectures":["LlamaForCausalLM"],"model_type":"llama",)"
                           R"("hidden_size":8,"num_hidden_layers":1,"num_attention_heads":1,)"
                           R"("num_key_value_heads":1,"head_dim":8,"intermediate_size":8,)"
                           R"("vocab_size":4,"max_position_embeddings":16,"rms_norm_eps":1e-5,)"
                           R"("rope_theta":1e4,"hidden_act":"silu","torch_dtype":"bfloat16",)"
                           R"("tie_word_embeddings":true})";

std::vector<SeedTensor> ModelTensors() {
  const std::string layer = "model.layers.0.";
  std::vector<SeedTensor> tensors = {{"model.embed_tokens.weight", "BF16", {4, 8}},
                                     {"model.norm.weight", "F32", {8}}};
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
    tensors.push_back({absl::StrCat(layer, norm, ".weight"), "BF16", {8}});
  for (const char* matrix : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
    tensors.push_back({absl::StrCat(layer, matrix, ".weight"), "F16", {8, 8}});
  return tensors;
}

}  // namespace

void TryInput(std::string_view bytes) {
  static ComputePool pool(1, 0);
  FuzzInput input(bytes);
  const size_t form = input.Below(kForms);
  const size_t scheme = input.Below(Schemes().size());
  Folder().Remove(kIndexName);
  Folder().Remove(kFileName);
  const auto write_text = [&](const char* name) {
    const std::string_view header = input.Upto('\0');
    Folder().Write(name, FileOf(header, input.Rest()));
  };
  switch (form) {
    case kFile:
      Folder().Write(kFileName, input.Rest());
      break;
    case kIndex: {
      Folder().Write(kIndexName, input.Upto('\0'));
      const std::string_view header = input.Upto('\0');
      const std::string_view other = input.Upto('\0');
      const std::string_view data = input.Rest();
      Folder().Write("a", FileOf(header, data.substr(0, data.size() / 2)));
      Folder().Write("b", FileOf(other, data.substr(data.size() / 2)));
      break;
    }
    case kModel:
      Folder().Write("config.json", input.Upto('\0'));
      write_text(kFileName);
      return ReadModel(Folder().path(), pool);
    default:
      write_text(kFileName);
  }
  TryCheckpoint(form == kQuantized ? Schemes()[scheme] : QuantizationDesc());
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  const auto add = [&](Form form, size_t scheme, const std::string& rest) {
    seeds.inputs.push_back(std::string{static_cast<char>(form), static_cast<char>(scheme)} + rest);
  };
  const std::vector<SeedTensor> two = {{"a", "F32", {2, 3}}, {"b", "F16", {5}}};
  const std::string text = TextOf(two);
  const size_t end = text.find('\0');
  add(kText, 0, text);
  add(kFile, 0, FileOf(text.substr(0, end), text.substr(end + 1)));
  add(kText, 0,
      R"({"__metadata__":{"format":"pt"},"s":{"dtype":"F64","shape":[],)"
      R"("data_offsets":[0,8]},"e":{"dtype":"BOOL","shape":[0,7],"data_offsets":[8,8]}})" +
          std::string(9, '\0'));
  add(kIndex, 0,
      R"({"metadata":{},"weight_map":{"a":"a","b":"b"}})" + std::string(1, '\0') +
          R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})" + std::string(1, '\0') +
          R"({"b":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})" + std::string(9, '\0'));
  for (size_t scheme = 0; scheme < Schemes().size(); ++scheme)
    add(kQuantized, scheme, TextOf(Quantized(scheme)));
  add(kModel, 0, kConfig + std::string(1, '\0') + TextOf(ModelTensors()));
  // The configs of all families, without tensors: these are read first. With one layer and few
  // experts, because lists of 50,000 tensors leave time for little else.
  const std::regex layers(R"re("(num_hidden_layers|n_layer)": *\d+)re"),
      experts(R"re("(n_routed_experts|num_experts|num_local_experts)": *\d+)re");
  for (const std::string& path : FilesOf("configs/shapes", ".json")) {
    const std::string config = std::regex_replace(FileText(path), layers, "\"$1\": 1");
    add(kModel, 0, std::regex_replace(config, experts, "\"$1\": 8") + '\0' + TextOf(two));
  }
  for (const auto& [dtype, size] : ElementBytes()) seeds.words.push_back("\"" + dtype + "\"");
  for (const char* word :
       {"\"dtype\"", "\"shape\"", "\"data_offsets\"", "\"__metadata__\"", "\"weight_map\"",
        "9223372036854775807", "4294967296", "-1", "1e400", "[]", "{}", "null", "\"m.weight\"",
        ".weight_scale", ".g_idx", "../a", "\"quantization_config\":", "\"quant_method\":"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
