// GGUF files that nobody vouches for: what opens lies inside the file, and weights, tokenizer and
// chat template are read from it or refused.
#include "common/check.h"
#include "engine/checkpoint/gguf.h"
#include "server/api/model_text.h"
#include "tests/fuzz/checked_tokenizer.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_folder.h"
#include "tests/fuzz/stored_values.h"
#include "tests/support/gguf_writer.h"

namespace baton {
namespace {

constexpr char kName[] = "model.gguf";

const ScratchFolder& Folder() {
  static const ScratchFolder folder;
  return folder;
}

bool IsInside(const GgufFile& file, const void* begin, size_t size) {
  const std::span<const std::byte> all = file.file().bytes();
  const auto* from = static_cast<const std::byte*>(begin);
  return size == 0 || (from >= all.data() && from + size <= all.data() + all.size());
}

void CheckValue(const GgufFile& file, const GgufValue& value) {
  const bool is_one = !value.is_array();
  for (const bool has : {value.Int().has_value(), value.Bool().has_value(),
                         value.String().has_value(), value.Number().has_value()})
    BATON_CHECK(is_one || !has);
  if (const auto text = value.String()) BATON_CHECK(IsInside(file, text->data(), text->size()));
  const auto texts = value.Strings();
  if (texts) {
    BATON_CHECK(texts->size() == value.count());
    for (const std::string_view text : *texts)
      BATON_CHECK(IsInside(file, text.data(), text.size()));
  }
  for (const size_t n : {value.Ints() ? value.Ints()->size() : value.count(),
                         value.Numbers() ? value.Numbers()->size() : value.count()})
    BATON_CHECK(n == value.count());
}

void CheckTensors(const GgufFile& file) {
  const std::byte* end = file.file().bytes().data();
  size_t n_read = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    BATON_CHECK(IsInside(file, tensor.bytes.data(), tensor.bytes.size()));
    BATON_CHECK(tensor.bytes.data() >= end);  // in order, without overlaps
    end = tensor.bytes.data() + tensor.bytes.size();
    BATON_CHECK(file.FindTensor(tensor.name) == &tensor);
    if (!IsRead(tensor.shape) || ++n_read > 16) continue;
    const auto stored = StoredTensor::Open(file, tensor.name, tensor.shape);
    if (stored.ok()) {
      ReadAll(*stored, tensor.shape);
    } else {
      BATON_CHECK(absl::IsInvalidArgument(stored.status()));
    }
  }
}

void CheckText(const std::string& path) {
  const auto tokenizer = LoadTokenizer(path);
  if (!tokenizer.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(tokenizer.status()) ||
                absl::IsNotFound(tokenizer.status()));
    return;
  }
  CheckTokens(**tokenizer);
  CheckUse(**tokenizer, "Hello <s> w\u00f6rld  12\n");
  const auto chat = LoadChatTemplate(path, **tokenizer);
  if (!chat.ok()) return;
  ChatTemplateInput input;
  input.messages = R"([{"role":"user","content":"hi"}])";
  input.limit = absl::Milliseconds(50);
  static_cast<void>((*chat)->Render(input));  // a prompt or a refusal
}

// ---- seeds ----

std::string Zeros(size_t n) { return std::string(n, '\0'); }

GgufWriter Model(const std::string& architecture) {
  GgufWriter writer;
  writer.alignment = 8;
  writer.Set("general.alignment", GgufWriter::Int(8));
  writer.Set("general.architecture", GgufWriter::Text(architecture));
  const auto set = [&](const std::string& key, const std::string& value) {
    writer.Set(architecture + "." + key, value);
  };
  set("block_count", GgufWriter::Int(1));
  set("context_length", GgufWriter::Int(16));
  set("embedding_length", GgufWriter::Int(8));
  set("feed_forward_length", GgufWriter::Int(8));
  set("attention.head_count", GgufWriter::Int(1));
  set("attention.layer_norm_rms_epsilon", GgufWriter::Float(1e-5f));
  set("rope.freq_base", GgufWriter::Float(1e4f));
  set("rope.scaling.type", GgufWriter::Text("linear"));
  set("rope.scaling.factor", GgufWriter::Float(2));
  const auto vector = [&](const std::string& name) { writer.AddFloats(name, {8}, 1); };
  writer.AddTensor("token_embd.weight", {8, 8}, 1, Zeros(128));
  vector("output_norm.weight");
  for (const char* norm : {"attn_norm", "ffn_norm"})
    vector(std::string("blk.0.") + norm + ".weight");
  if (architecture == "qwen2")
    for (const char* name : {"attn_q", "attn_k", "attn_v"})
      vector(std::string("blk.0.") + name + ".bias");
  if (architecture == "qwen3")
    for (const char* name : {"attn_q_norm", "attn_k_norm"})
      vector(std::string("blk.0.") + name + ".weight");
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    writer.AddTensor(std::string("blk.0.") + name + ".weight", {8, 8}, 30, Zeros(128));
  return writer;
}

void AddTokens(GgufWriter* writer, const std::string& model) {
  writer->Set("tokenizer.ggml.model", GgufWriter::Text(model));
  const bool is_llama = model == "llama";
  const std::vector<std::string> tokens =
      is_llama
          ? std::vector<std::string>{"<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "h", "i", "hi"}
          : std::vector<std::string>{"<|end|>", "h", "i", "hi", "\u0120", "\u0120hi", "1", "2"};
  writer->Set("tokenizer.ggml.tokens", GgufWriter::Texts(tokens));
  writer->Set("tokenizer.ggml.bos_token_id", GgufWriter::Int(is_llama ? 1 : 0));
  writer->Set("tokenizer.ggml.eos_token_id", GgufWriter::Int(is_llama ? 2 : 0));
  writer->Set(
      "tokenizer.ggml.token_type",
      GgufWriter::Numbers<int32_t>(5, is_llama ? std::vector<int32_t>{2, 3, 3, 6, 1, 1, 1, 1}
                                               : std::vector<int32_t>{3, 1, 1, 1, 1, 1, 1, 1}));
  if (is_llama) {
    writer->Set("tokenizer.ggml.unknown_token_id", GgufWriter::Int(0));
    writer->Set("tokenizer.ggml.scores",
                GgufWriter::Numbers<float>(6, {0, 0, 0, 0, -1, -2, -3, -4}));
    writer->Set("tokenizer.ggml.add_space_prefix", GgufWriter::Bool(false));
  } else {
    writer->Set("tokenizer.ggml.pre", GgufWriter::Text("llama-bpe"));
    writer->Set("tokenizer.ggml.merges", GgufWriter::Texts({"h i", "\u0120 hi"}));
    writer->Set("tokenizer.ggml.add_bos_token", GgufWriter::Bool(true));
  }
  writer->Set(
      "tokenizer.chat_template",
      GgufWriter::Text("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"));
}

}  // namespace

void TryInput(std::string_view bytes) {
  static ComputePool pool(1, 0);
  const std::string path = Folder().file(kName);
  Folder().Write(kName, bytes);
  const auto file = GgufFile::Open(path);
  if (!file.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(file.status()));
    BATON_CHECK(file.status().message().find(path) != std::string_view::npos);
    return;
  }
  BATON_CHECK(IsInside(*file, file->header().data(), file->header().size()));
  for (const auto& [key, value] : file->values()) {
    BATON_CHECK(file->Find(key) == &value);
    CheckValue(*file, value);
  }
  CheckTensors(*file);
  ReadModel(path, pool);
  CheckText(path);
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    for (const char* tokens : {"", "llama", "gpt2"}) {
      GgufWriter writer = Model(architecture);
      if (*tokens != '\0') AddTokens(&writer, tokens);
      seeds.inputs.push_back(writer.Bytes());
    }
  }
  // A tensor of each type, of two blocks, and a value of each type.
  GgufWriter types;
  for (uint32_t id = 0; id < 40; ++id) {
    const GgufTensorType* type = FindGgufTensorType(id);
    if (type == nullptr) continue;
    types.AddTensor(std::string(type->name), {static_cast<uint64_t>(type->block_values), 2}, id,
                    Zeros(2 * static_cast<size_t>(type->block_bytes)));
    seeds.words.emplace_back(type->name);
  }
  seeds.inputs.push_back(types.Bytes());
  GgufWriter values;
  values.Set("u8", GgufWriter::Numbers<uint8_t>(0, {1, 2, 3}));
  values.Set("i16", GgufWriter::Numbers<int16_t>(3, {-1, 2}));
  values.Set("u64", GgufWriter::Numbers<uint64_t>(10, {1, ~uint64_t{0}}));
  values.Set("f64", GgufWriter::Numbers<double>(12, {1, -2.5}));
  values.Set("bool", GgufWriter::Bool(true));
  values.Set("texts", GgufWriter::Texts({"a", "", "\xff"}));
  seeds.inputs.push_back(values.Bytes());
  for (const char* word : {"GGUF", "general.alignment", "general.architecture", "llama.block_count",
                           "rope_freqs.weight", "output.weight", "token_embd.weight"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
