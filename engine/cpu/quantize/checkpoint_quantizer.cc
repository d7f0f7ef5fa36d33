#include "engine/cpu/quantize/checkpoint_quantizer.h"

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/safetensors_writer.h"
#include "engine/checkpoint/stored_tensor.h"
#include "engine/checkpoint/weight_source.h"
#include "engine/cpu/linear/weight_quantizer.h"
#include "engine/model/model_path.h"
#include "engine/model/text_file.h"
#include "engine/step/backend.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::string_view kWeight = ".weight";
constexpr int64_t kRowsPerItem = 16;
constexpr int64_t kCodesPerWord = 8;  // int4
constexpr size_t kMaxConfigBytes = 1 << 20;

bool IsLinear(const TensorSpec& spec) {
  constexpr std::string_view kOthers[] = {".router", ".shared_gate", ".key_up", ".value_up"};
  const bool is_other = std::any_of(std::begin(kOthers), std::end(kOthers),
                                    [&](auto end) { return spec.name.ends_with(end); });
  return spec.name.starts_with("layers.") && !spec.is_vector && !is_other &&
         spec.stored_name.ends_with(kWeight);
}

// Inputs that share a scale in the file: the format's group, or a part of it that divides k. 0: the
// matrix stays unchanged.
int64_t StoredGroup(WeightFormat format, int64_t k) {
  if (format.type == WeightType::kInt8) return k;
  int64_t group = format.group;
  while (group > 32 && k % group != 0) group /= 2;
  return k % group == 0 ? group : 0;
}

// One matrix that is converted to integers: its codes and scales among the tensors of the new file.
struct Linear {
  StoredTensor stored;
  int64_t n, k;
  size_t codes, scales;
};
// A tensor that stays unchanged.
struct Copy {
  const TensorView* view;
  size_t to;
};

class Conversion {
 public:
  Conversion(const ModelDesc& model, const Checkpoint& checkpoint, WeightFormat format)
      : checkpoint_(checkpoint), format_(format) {
    for (const TensorSpec& spec : TensorsOf(model)) {
      if (IsLinear(spec)) linear_names_.insert(spec.stored_name);
    }
  }

  absl::Status PlanTensors() {
    for (const SafetensorsFile& file : checkpoint_.files()) {
      for (const auto& [name, view] : file.tensors()) {
        if (linear_names_.contains(name) && StoredGroup(format_, view.shape[1]) > 0) {
          RETURN_IF_ERROR(AddLinear(name, view));
        } else {
          copies_.push_back({&view, tensors_.size()});
          tensors_.push_back({name, view.dtype, view.shape, BytesOf(view)});
        }
      }
    }
    return absl::OkStatus();
  }
  const std::vector<SafetensorsWriter::Tensor>& tensors() const { return tensors_; }
  const std::set<int64_t>& groups() const { return groups_; }

  void Write(SafetensorsWriter& writer, ComputePool& pool, void (*progress)(void*, double),
             void* progress_context) const {
    for (const Copy& copy : copies_) {
      std::memcpy(writer.data(copy.to), copy.view->bytes.data(), copy.view->bytes.size());
    }
    std::vector<std::pair<const Linear*, int64_t>> items;  // linear, and the first row of the item
    for (const Linear& linear : linears_) {
      for (int64_t row = 0; row < linear.n; row += kRowsPerItem) items.emplace_back(&linear, row);
    }
    std::atomic<int64_t> done = 0;
    pool.For(static_cast<int64_t>(items.size()), [&](int64_t i, int member) {
      const auto& [linear, first] = items[i];
      for (int64_t row = first; row < std::min(first + kRowsPerItem, linear->n); ++row) {
        WriteRow(*linear, row, writer);
      }
      const int64_t count = done.fetch_add(1, std::memory_order_relaxed) + 1;
      if (member == 0 && progress != nullptr && count % 16 == 0) {
        progress(progress_context, static_cast<double>(count) / static_cast<double>(items.size()));
      }
    });
    if (progress != nullptr) progress(progress_context, 1.0);
  }

 private:
  static int64_t BytesOf(const TensorView& view) { return static_cast<int64_t>(view.bytes.size()); }

  absl::Status AddLinear(const std::string& name, const TensorView& view) {
    ASSIGN_OR_RETURN(StoredTensor stored, StoredTensor::Open(checkpoint_, {}, name, view.shape));
    const int64_t n = view.shape[0], k = view.shape[1], group = StoredGroup(format_, k);
    groups_.insert(group);
    const std::string module = name.substr(0, name.size() - kWeight.size());
    linears_.push_back({std::move(stored), n, k, tensors_.size(), tensors_.size() + 1});
    if (format_.type == WeightType::kInt8) {
      tensors_.push_back({name, "I8", {n, k}, n * k});
    } else {
      const int64_t words = k / kCodesPerWord;
      tensors_.push_back({module + ".weight_packed", "I32", {n, words}, n * words * 4});
    }
    tensors_.push_back({module + ".weight_scale", "F32", {n, k / group}, n * (k / group) * 4});
    return absl::OkStatus();
  }

  void WriteRow(const Linear& linear, int64_t row, SafetensorsWriter& writer) const {
    const int64_t k = linear.k;
    std::vector<float> weights(static_cast<size_t>(k));
    std::vector<int8_t> values(weights.size());
    std::vector<float> scales(static_cast<size_t>(format_.Groups(k)));
    linear.stored.ReadFp32(row, 1, weights.data());
    QuantizeOutput(weights.data(), k, format_, values.data(), scales.data());
    if (format_.type == WeightType::kInt8) {
      std::memcpy(writer.data(linear.codes) + row * k, values.data(), values.size());
    } else {
      WriteHalves(values, writer.data(linear.codes) + row * k / 2);
    }
    const int64_t group = StoredGroup(format_, k);
    for (int64_t g = 0; g < k / group; ++g) {
      const float scale = scales[g * group / format_.GroupK(k)];
      std::memcpy(writer.data(linear.scales) + (row * (k / group) + g) * 4, &scale, sizeof(scale));
    }
  }
  // Code j of a little-endian word lies at bit 4 j; a code is the value plus 8.
  static void WriteHalves(const std::vector<int8_t>& values, std::byte* out) {
    for (size_t i = 0; i < values.size(); i += 2) {
      out[i / 2] = static_cast<std::byte>((values[i] + 8) | (values[i + 1] + 8) << 4);
    }
  }

  const Checkpoint& checkpoint_;
  const WeightFormat format_;
  std::set<std::string> linear_names_;
  std::vector<Linear> linears_;
  std::vector<Copy> copies_;
  std::vector<SafetensorsWriter::Tensor> tensors_;
  std::set<int64_t> groups_;
};

json::object SchemeOf(WeightFormat format, int64_t group) {
  const bool is_int8 = format.type == WeightType::kInt8;
  json::object weights{{"num_bits", is_int8 ? 8 : 4},
                       {"type", "int"},
                       {"symmetric", true},
                       {"dynamic", false},
                       {"strategy", is_int8 ? "channel" : "group"}};
  if (!is_int8) weights["group_size"] = group;
  json::object scheme{{"targets", {"Linear"}}, {"weights", std::move(weights)}};
  scheme["input_activations"] = nullptr;
  if (is_int8) {
    scheme["input_activations"] = {{"num_bits", 8},
                                   {"type", "int"},
                                   {"symmetric", true},
                                   {"strategy", "token"},
                                   {"dynamic", true}};
  }
  return scheme;
}

json::object QuantizationConfig(WeightFormat format, const std::set<int64_t>& groups) {
  json::object schemes;
  if (format.type == WeightType::kInt8) {
    schemes["group_0"] = SchemeOf(format, 0);
  } else {
    // Widest group first, because most matrices use it.
    for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
      schemes[absl::StrCat("group_", schemes.size())] = SchemeOf(format, *group);
    }
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", format.type == WeightType::kInt8 ? "int-quantized" : "pack-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups", std::move(schemes)},
          {"ignore", {"lm_head"}}};
}

absl::StatusOr<json::object> ReadConfig(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/config.json");
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxConfigBytes));
  json::error_code error;
  json::value value = json::parse(text, error);
  if (error || !value.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  }
  for (const char* field : {"quantization_config", "compression_config"}) {
    if (value.get_object().contains(field)) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s: field \"%s\": the model is quantised already; give the original", path, field));
    }
  }
  return std::move(value.get_object());
}

absl::Status PrepareFolder(const std::string& out) {
  std::error_code error;
  fs::create_directories(out, error);
  if (!fs::is_directory(out, error)) {
    return absl::UnavailableError(absl::StrCat(out, ": cannot be created; choose another --out"));
  }
  if (!fs::is_empty(out, error)) {
    return absl::AlreadyExistsError(absl::StrCat(out, ": not empty; choose another --out"));
  }
  return absl::OkStatus();
}

// Copies tokenizer, chat template and similar files, but no weights and no config.json.
absl::Status CopyOtherFiles(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::directory_iterator at(from, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const fs::directory_entry& entry = *at;
    const std::string name = entry.path().filename();
    const std::string type = entry.path().extension();
    const bool is_weights = type == ".safetensors" || type == ".bin" || type == ".pth" ||
                            type == ".gguf" || name.ends_with(".index.json");
    std::error_code unknown;  // what cannot be looked at is no file to copy
    if (!entry.is_regular_file(unknown) || is_weights || name == "config.json") continue;
    std::error_code failed;
    fs::copy_file(entry.path(), fs::path(to) / name, failed);
    if (failed) {
      return absl::UnavailableError(
          absl::StrCat(to, "/", name, ": cannot be written: ", failed.message()));
    }
  }
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(from, ": cannot be listed: ", error.message()));
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
}

}  // namespace

absl::Status QuantizeCheckpoint(const QuantizeOptions& options, void (*progress)(void*, double),
                                void* progress_context) {
  if (ParseModelPath(options.model).form == ModelForm::kGgufFile) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.model,
                     ": a GGUF file is not converted; give the model folder it was made from, or "
                     "serve the file with --dtype int8 or int4"));
  }
  ASSIGN_OR_RETURN(const ModelDesc desc, ReadModelDesc(options.model));
  ASSIGN_OR_RETURN(json::object config, ReadConfig(options.model));
  ComputePool pool(ComputeThreads(options.threads), 0);
  {  // checks that every tensor exists, has the right shape, and is finite
    ASSIGN_OR_RETURN(const auto source, OpenWeightSource(options.model, desc, 0));
    RETURN_IF_ERROR(source->Fingerprint(pool).status());
  }
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.model));
  Conversion conversion(desc, checkpoint, options.format);
  RETURN_IF_ERROR(conversion.PlanTensors());
  RETURN_IF_ERROR(PrepareFolder(options.out));
  ASSIGN_OR_RETURN(const auto writer,
                   SafetensorsWriter::Create(absl::StrCat(options.out, "/model.safetensors"),
                                             conversion.tensors()));
  conversion.Write(*writer, pool, progress, progress_context);
  RETURN_IF_ERROR(CopyOtherFiles(options.model, options.out));
  config["quantization_config"] = QuantizationConfig(options.format, conversion.groups());
  RETURN_IF_ERROR(
      WriteText(absl::StrCat(options.out, "/config.json"), json::serialize(config) + "\n"));
  return writer->Finish();  // last: a folder without the weights is no model
}

}  // namespace baton
