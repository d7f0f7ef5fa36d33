#include "server/cli/model_report.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_model.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/weight_source.h"
#include "engine/model/model_path.h"
#include "server/api/model_text.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using Mark = Finding::Mark;

// Files of weights in other formats.
constexpr std::string_view kOtherFormats[] = {".bin", ".pt",   ".pth",     ".ckpt",
                                              ".h5",  ".onnx", ".msgpack", ".npz"};

// Tensors of one type.
struct TypeCount {
  int64_t n = 0;
  std::string example;
};
using TypeCounts = std::map<std::string, TypeCount>;

class Inspection {
 public:
  explicit Inspection(std::string path) : path_(std::move(path)) {}

  std::vector<Finding> Run() {
    const auto [form, path] = ParseModelPath(path_);
    std::error_code error;
    if (form == ModelForm::kRandom) {
      Add("format", Mark::kGood, "random weights for " + path);
      Describe(ReadModelDesc(path_));
    } else if (fs::is_directory(path_, error)) {
      InspectFolder();
      InspectText();
    } else {
      InspectGguf();
    }
    return std::move(findings_);
  }

 private:
  void Add(const std::string& name, Mark mark, const std::string& text) {
    findings_.push_back({mark, name, text});
  }
  void Add(const std::string& name, const absl::Status& status) {
    Add(name, Mark::kBad, std::string(status.message()));
  }

  void InspectGguf() {
    const absl::StatusOr<GgufFile> file = GgufFile::Open(path_);
    if (!file.ok()) return Add("format", file.status());
    Add("format", Mark::kGood,
        absl::StrFormat("GGUF, %d metadata values, %d tensors", file->values().size(),
                        file->tensors().size()));
    Describe(DescribeGguf(*file));
    TypeCounts types;
    for (const GgufTensor& tensor : file->tensors()) {
      Count(std::string(tensor.type->name), tensor.name, types);
    }
    for (const auto& [name, count] : types) {
      const auto tensor = file->FindTensor(count.example);
      AddType(name, count, tensor->type->is_supported() ? Mark::kGood : Mark::kBad,
              "supported: " + SupportedGgufTensorTypes());
    }
    InspectText();
  }

  void InspectFolder() {
    Add("format", Mark::kGood, "a folder, as Hugging Face has them");
    Describe(ModelDesc::FromFolder(path_));
    const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(path_);
    if (!checkpoint.ok()) {
      Add("weights", checkpoint.status());
      return AddOtherFormats();
    }
    TypeCounts types;
    for (const SafetensorsFile& file : checkpoint->files()) {
      for (const auto& [name, view] : file.tensors()) Count(view.dtype, name, types);
    }
    for (const auto& [name, count] : types) {
      if (name == "BF16" || name == "F16" || name == "F32") {
        AddType(name, count, Mark::kGood, "");
      } else if (is_quantized_) {
        AddType(name, count, Mark::kNote,
                "read as quantization_config says, where the model has it");
      } else {
        AddType(name, count, Mark::kBad, "supported without a quantization_config: BF16, F16, F32");
      }
    }
  }

  void Describe(const absl::StatusOr<ModelDesc>& desc) {
    if (!desc.ok()) return Add("architecture", desc.status());
    is_quantized_ = !desc->quantization.schemes.empty();
    Add("architecture", Mark::kGood,
        absl::StrFormat("%s, %d layers, %.1f M parameters, context %d", desc->architecture,
                        desc->n_layers, static_cast<double>(desc->n_parameters()) / 1e6,
                        desc->max_positions));
    const auto source = OpenWeightSource(path_, *desc, 0);
    if (!source.ok()) return Add("tensors", source.status());
    Add("tensors", Mark::kGood, "all that the model needs are there, in their shapes");
  }

  static void Count(const std::string& type, const std::string& tensor, TypeCounts& types) {
    TypeCount& count = types[type];
    if (count.n++ == 0) count.example = tensor;
  }

  void AddType(const std::string& name, const TypeCount& count, Mark mark,
               const std::string& wanted) {
    std::string text = absl::StrFormat("%d tensors", count.n);
    if (mark != Mark::kGood) {
      text = absl::StrCat(text, ", such as ", ShownName(count.example), "; ", wanted);
    }
    Add("type " + name, mark, text);
  }

  void AddOtherFormats() {
    std::vector<std::string> others, ggufs;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path_, error)) {
      const std::string end = entry.path().extension();
      const std::string name = entry.path().filename();
      if (end == ".gguf") ggufs.push_back(name);
      if (std::find(std::begin(kOtherFormats), std::end(kOtherFormats), end) !=
          std::end(kOtherFormats)) {
        others.push_back(name);
      }
    }
    std::sort(others.begin(), others.end());
    std::sort(ggufs.begin(), ggufs.end());
    if (!others.empty()) {
      Add("files", Mark::kBad,
          absl::StrCat(absl::StrJoin(others, ", "),
                       ": not supported; supported: *.safetensors in a "
                       "folder, or a .gguf file"));
    }
    if (!ggufs.empty()) {
      Add("files", Mark::kNote, absl::StrCat(absl::StrJoin(ggufs, ", "), ": give the file itself"));
    }
  }

  void InspectText() {
    const auto tokenizer = LoadTokenizer(path_);
    if (tokenizer.ok()) {
      Add("tokenizer", Mark::kGood, absl::StrFormat("%d tokens", (*tokenizer)->vocab_size()));
    } else {
      Add("tokenizer", tokenizer.status());
      return;
    }
    const auto chat = LoadChatTemplate(path_, **tokenizer);
    if (chat.ok()) {
      Add("template", Mark::kGood, "of chats");
    } else if (absl::IsNotFound(chat.status())) {
      Add("template", Mark::kNote, "none: /v1/completions only");
    } else {
      Add("template", chat.status());
    }
  }

  std::string path_;
  bool is_quantized_ = false;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> InspectModel(const std::string& path) { return Inspection(path).Run(); }

}  // namespace baton
