#include "server/api/model_text.h"

#include <boost/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/checkpoint/gguf.h"
#include "engine/model/model_path.h"
#include "text/token_list.h"

namespace baton {
namespace {

namespace json = boost::json;

absl::Status Named(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": tokenizer: ", status.message()));
}

// Reads metadata of a kind; what is there but of another kind is an error, once.
class Metadata {
 public:
  explicit Metadata(const GgufFile& file) : file_(file) {}

  std::string_view Text(const char* key) {
    return Read<std::string_view>(key, "a string", [](auto& v) { return v.String(); }).value_or("");
  }
  std::optional<int64_t> Int(const char* key) {
    return Read<int64_t>(key, "an integer", [](auto& v) { return v.Int(); });
  }
  std::optional<bool> Bool(const char* key) {
    return Read<bool>(key, "true or false", [](auto& v) { return v.Bool(); });
  }
  template <typename T, typename Get>
  std::optional<T> Read(const char* key, const char* wanted, const Get& get) {
    const GgufValue* value = file_.Find(key);
    if (value == nullptr) return std::nullopt;
    std::optional<T> found = get(*value);
    if (!found) {
      status_.Update(absl::InvalidArgumentError(
          absl::StrFormat("%s: metadata \"%s\" must be %s", file_.path(), key, wanted)));
    }
    return found;
  }
  template <typename T, typename Get>
  std::vector<T> List(const char* key, const char* wanted, const Get& get) {
    return Read<std::vector<T>>(key, wanted, get).value_or(std::vector<T>());
  }
  const absl::Status& status() const { return status_; }

 private:
  const GgufFile& file_;
  absl::Status status_;
};

absl::StatusOr<TokenList> TokensOf(const GgufFile& file) {
  Metadata metadata(file);
  TokenList list;
  list.model = metadata.Text("tokenizer.ggml.model");
  list.pre = metadata.Text("tokenizer.ggml.pre");
  const auto strings = [](auto& value) { return value.Strings(); };
  list.tokens =
      metadata.List<std::string_view>("tokenizer.ggml.tokens", "an array of strings", strings);
  list.merges =
      metadata.List<std::string_view>("tokenizer.ggml.merges", "an array of strings", strings);
  list.types = metadata.List<int64_t>("tokenizer.ggml.token_type", "an array of integers",
                                      [](auto& value) { return value.Ints(); });
  list.scores = metadata.List<double>("tokenizer.ggml.scores", "an array of numbers",
                                      [](auto& value) { return value.Numbers(); });
  list.begin = metadata.Int("tokenizer.ggml.bos_token_id");
  list.end = metadata.Int("tokenizer.ggml.eos_token_id");
  list.unknown = metadata.Int("tokenizer.ggml.unknown_token_id");
  list.adds_begin = metadata.Bool("tokenizer.ggml.add_bos_token");
  list.adds_end = metadata.Bool("tokenizer.ggml.add_eos_token");
  list.adds_space = metadata.Bool("tokenizer.ggml.add_space_prefix");
  RETURN_IF_ERROR(metadata.status());
  return list;
}

// Ids that the model has no row for would end a request with an error, or worse.
absl::Status CheckRows(const GgufFile& file, size_t n_tokens) {
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr || static_cast<int64_t>(n_tokens) <= embedding->shape[0]) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: metadata \"tokenizer.ggml.tokens\" has %d tokens, tensor \"token_embd.weight\" rows for "
      "%d; convert the model again",
      file.path(), n_tokens, embedding->shape[0]));
}

// Names of the special tokens in templates.
std::string SpecialTokensOf(const TokenList& list, std::optional<int64_t> padding) {
  json::object names;
  const auto add = [&](const char* name, std::optional<int64_t> id) {
    if (!id || *id < 0 || *id >= static_cast<int64_t>(list.tokens.size())) return;
    const std::string_view token = list.tokens[static_cast<size_t>(*id)];
    names[name] = json::string(token.data(), token.size());
  };
  add("bos_token", list.begin);
  add("eos_token", list.end);
  add("unk_token", list.unknown);
  add("pad_token", padding);
  return json::serialize(names);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(const GgufFile& file) {
  if (file.Find("tokenizer.ggml.model") == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        file.path(),
        ": metadata \"tokenizer.ggml.model\" is missing: the file has no tokenizer; convert the "
        "model again with its vocabulary"));
  }
  ASSIGN_OR_RETURN(const TokenList list, TokensOf(file));
  RETURN_IF_ERROR(CheckRows(file, list.tokens.size()));
  const absl::StatusOr<std::string> text = TokenizerJson(list);
  if (!text.ok()) return Named(file.path(), text.status());
  auto tokenizer = Tokenizer::FromJson(*text);
  if (!tokenizer.ok()) return Named(file.path(), tokenizer.status());
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplateOf(const GgufFile& file,
                                                             std::string_view control_tokens) {
  ASSIGN_OR_RETURN(const TokenList list, TokensOf(file));
  Metadata metadata(file);
  const std::string_view source = metadata.Text("tokenizer.chat_template");
  const std::optional<int64_t> padding = metadata.Int("tokenizer.ggml.padding_token_id");
  RETURN_IF_ERROR(metadata.status());
  if (source.empty()) {
    return absl::NotFoundError(absl::StrCat(
        file.path(), ": metadata \"tokenizer.chat_template\" is missing: no chat template"));
  }
  auto chat = ChatTemplate::FromSource(source, SpecialTokensOf(list, padding), control_tokens);
  if (chat.ok()) return chat;
  return absl::Status(
      chat.status().code(),
      absl::StrCat(file.path(), ": tokenizer.chat_template: ", chat.status().message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  if (ParseModelPath(path).form != ModelForm::kGgufFile) return Tokenizer::FromFolder(path);
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  return TokenizerOf(file);
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> LoadChatTemplate(const std::string& path,
                                                               const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const std::string control_tokens, tokenizer.SpecialTokens());
  if (ParseModelPath(path).form != ModelForm::kGgufFile)
    return ChatTemplate::FromFolder(path, control_tokens);
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  return ChatTemplateOf(file, control_tokens);
}

}  // namespace baton
