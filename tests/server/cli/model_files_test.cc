// GGUF files in place of folders: names, tokenizers, templates, and the doctor's findings for any
// model.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "server/api/model_text.h"
#include "server/api/served_model.h"
#include "server/cli/model_report.h"
#include "server/config/model_folder.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;
using Mark = Finding::Mark;

const std::string kData = BATON_TEST_DATA;
const std::string kLlama = kData + "/models/gguf_llama/model.gguf";

ModelConfig Resolved(const std::string& path) {
  ModelConfig config;
  config.path = path;
  const absl::Status status = ResolveModel(&config);
  INFO(std::string(status.message()));
  REQUIRE(status.ok());
  return config;
}

// Returns the findings with this mark, "name: text" each.
std::string Findings(const std::string& path, Mark mark) {
  std::string text;
  for (const Finding& finding : InspectModel(path)) {
    if (finding.mark == mark) text += finding.name + ": " + finding.text + "\n";
  }
  return text;
}

GgufWriter WithTokens() {
  GgufWriter writer = SmallGguf();
  writer.Set("tokenizer.ggml.model", GgufWriter::Text("llama"));
  writer.Set("tokenizer.ggml.tokens",
             GgufWriter::Texts({"<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "a", "b", "ab"}));
  writer.Set("tokenizer.ggml.token_type",
             GgufWriter::Numbers<int32_t>(5, {2, 3, 3, 6, 1, 1, 1, 1}));
  writer.Set("tokenizer.ggml.scores", GgufWriter::Numbers<float>(6, {0, 0, 0, 0, -2, -3, -4, -1}));
  writer.Set("tokenizer.ggml.bos_token_id", GgufWriter::Int(1));
  writer.Set("tokenizer.ggml.eos_token_id", GgufWriter::Int(2));
  writer.Set("tokenizer.ggml.unknown_token_id", GgufWriter::Int(0));
  writer.Set("tokenizer.chat_template",
             GgufWriter::Text("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"));
  return writer;
}

}  // namespace

TEST_CASE("a GGUF file is a model by its path, with the text of the folder it was made from") {
  const ModelConfig config = Resolved(kLlama);
  CHECK((config.path == kLlama && config.name == "model"));
  const auto model = ServedModel::Load(config);
  INFO(std::string(model.status().message()));
  REQUIRE(model.ok());
  CHECK(((*model)->vocab == 1000 && (*model)->max_context == 2048));
  CHECK((*model)->eos_tokens == std::vector<int32_t>{989, 997, 996});
  const std::string folder = kData + "/tokenizers/llama3-small";
  const auto original = LoadTokenizer(folder);
  REQUIRE(original.ok());
  const auto chat = LoadChatTemplate(folder, **original);
  REQUIRE(chat.ok());
  REQUIRE((*model)->chat_template != nullptr);
  ChatTemplateInput input;
  input.messages = R"([{"role": "system", "content": "Be brief."},
                       {"role": "user", "content": "Where does the river go?"}])";
  const PromptText rendered = *(*chat)->Render(input);
  const PromptText same = *(*model)->chat_template->Render(input);
  CHECK(same.text == rendered.text);
  CHECK((same.controls == rendered.controls && !rendered.controls->empty()));
  for (const std::string& text : {rendered.text, std::string("def worker_queue( 1234567 \n\n  x"),
                                  std::string("今天我们在学校写字。 👩‍💻")}) {
    for (const bool special : {false, true}) {
      const std::vector<int32_t> ids = *(*original)->Encode(text, special);
      CHECK(*(*model)->tokenizer->Encode(text, special) == ids);
      CHECK(*(*model)->tokenizer->Decode(ids, true) == *(*original)->Decode(ids, true));
    }
  }
}

TEST_CASE("a SentencePiece vocabulary and a template with the names of its tokens") {
  const TempFolder folder;
  folder.Write("small.gguf", WithTokens().Bytes());
  const auto model = ServedModel::Load(Resolved(folder.file("small.gguf")));
  INFO(std::string(model.status().message()));
  REQUIRE(model.ok());
  CHECK((*model)->name == "small");
  CHECK(*(*model)->tokenizer->Encode("ab\n", true) == std::vector<int32_t>{1, 4, 7, 3});
  ChatTemplateInput input;
  input.messages = R"([{"role": "user", "content": "a b"}])";
  CHECK((*model)->chat_template->Render(input)->text == "<s>a b");
}

TEST_CASE("tokenizers that are missing, wrong or too long for the model are refused by name") {
  const auto error = [](const std::string& key, const std::string& value) {
    GgufWriter writer = WithTokens();
    writer.Set(key, value);
    const TempFolder folder;
    folder.Write("small.gguf", writer.Bytes());
    const auto model = ServedModel::Load(Resolved(folder.file("small.gguf")));
    if (!model.ok()) CHECK_THAT(std::string(model.status().message()), Contains("small.gguf"));
    return std::string(model.status().message());
  };
  CHECK_THAT(error("tokenizer.ggml.model", ""), Contains("\"tokenizer.ggml.model\" is missing"));
  CHECK_THAT(error("tokenizer.ggml.model", GgufWriter::Text("bert")),
             Contains("tokenizer.ggml.model is \"bert\"; supported: gpt2, llama"));
  CHECK_THAT(error("tokenizer.ggml.tokens", GgufWriter::Int(1)),
             Contains("\"tokenizer.ggml.tokens\" must be an array of strings"));
  CHECK_THAT(error("tokenizer.ggml.scores", ""), Contains("8 tokens, but 0 token scores"));
  CHECK_THAT(error("tokenizer.ggml.tokens",
                   GgufWriter::Texts({"0", "1", "2", "3", "4", "5", "6", "7", "8"})),
             Contains("has 9 tokens, tensor \"token_embd.weight\" rows for 8"));
  CHECK_THAT(error("tokenizer.ggml.bos_token_id", GgufWriter::Int(4'000'000'000)),
             Contains("4000000000"));
  CHECK_THAT(error("tokenizer.ggml.add_bos_token", GgufWriter::Int(1)),
             Contains("\"tokenizer.ggml.add_bos_token\" must be true or false"));
  CHECK_THAT(error("tokenizer.chat_template", GgufWriter::Text("{% if %}")),
             Contains("tokenizer.chat_template: "));
  CHECK(error("tokenizer.chat_template", "").empty());
}

TEST_CASE("a folder of GGUF files says which to give") {
  const TempFolder folder;
  folder.Write("b.gguf", "");
  folder.Write("a.gguf", "");
  ModelConfig config;
  config.path = folder.path();
  CHECK_THAT(std::string(ResolveModel(&config).message()),
             Contains("it has GGUF files: give one, such as " + folder.file("a.gguf")));
}

TEST_CASE("the doctor says what of a model is supported") {
  const std::string good = Findings(kLlama, Mark::kGood);
  for (const char* name :
       {"format: GGUF", "architecture: LlamaForCausalLM, 2 layers", "tensors: all",
        "type Q4_K: 7 tensors", "type F32: 6 tensors", "tokenizer: 1000 tokens", "template: "}) {
    CHECK_THAT(good, Contains(name));
  }
  CHECK(Findings(kLlama, Mark::kBad).empty());
  const std::string folder = kData + "/models/llama32";
  CHECK(Findings(folder, Mark::kBad).empty());
  CHECK_THAT(Findings(folder, Mark::kGood), Contains("type BF16: "));
  const std::string random =
      "random:" + std::string(BATON_SOURCE_DIR) + "/configs/shapes/deepseek-v3.json";
  CHECK_THAT(Findings(random, Mark::kGood),
             Contains("DeepseekV3ForCausalLM, 61 layers, 671026.4 M"));
}

TEST_CASE("the doctor names architecture, field, tensor, type and file that are not supported") {
  const TempFolder folder;
  const auto bad = [&](const std::string& bytes) {
    folder.Write("x.gguf", bytes);
    return Findings(folder.file("x.gguf"), Mark::kBad);
  };
  GgufWriter writer = WithTokens();
  writer.Set("general.architecture", GgufWriter::Text("mamba"));
  writer.Set("tokenizer.ggml.model", GgufWriter::Text("rwkv"));
  writer.AddTensor("more.weight", {256}, 10, std::string(84, '\0'));
  const std::string all = bad(writer.Bytes());
  CHECK_THAT(all, Contains("architecture: ") && Contains("is \"mamba\"; supported: llama, qwen2"));
  CHECK_THAT(all, Contains("type Q2_K: 1 tensors, such as \"more.weight\"; supported: F32, F16"));
  CHECK_THAT(all, Contains("tokenizer.ggml.model is \"rwkv\""));
  CHECK_THAT(bad("hello"), Contains("format: ") && Contains("not a GGUF file"));
  CHECK_THAT(bad(WithTokens().Bytes().substr(0, 5000)), Contains("format: "));
  writer = WithTokens();
  writer.tensors.pop_back();
  CHECK_THAT(bad(writer.Bytes()), Contains("tensors: ") && Contains("output_norm.weight"));

  const TempFolder other;
  other.Write("config.json", R"({"architectures": ["GPT2LMHeadModel"]})");
  other.Write("pytorch_model.bin", "");
  other.Write("x.gguf", "");
  const std::string path = other.path();
  const std::string text = Findings(path, Mark::kBad);
  CHECK_THAT(text, Contains("architectures is [\"GPT2LMHeadModel\"]; supported: one of"));
  CHECK_THAT(text, Contains("weights: ") && Contains("neither model.safetensors"));
  CHECK_THAT(text, Contains("files: pytorch_model.bin: not supported"));
  CHECK_THAT(text, Contains("tokenizer: ") && Contains("tokenizer.json"));
  CHECK_THAT(Findings(path, Mark::kNote), Contains("files: x.gguf: give the file itself"));
  CHECK_FALSE(Findings("/no/such/model", Mark::kBad).empty());
}

}  // namespace baton
