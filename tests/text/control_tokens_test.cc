// Strings of a request never become special tokens, whatever the template does with them, and the
// other tokens are those of the same text without special tokens.
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/text/oracle.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton {
namespace {

namespace json = boost::json;
using Ids = std::vector<int32_t>;

// A tokenizer of the reference, and the same one with special tokens that no text spells.
struct Family {
  explicit Family(const std::string& folder) : name(folder) {
    const std::string text =
        oracle::ReadFile(oracle::Data("tokenizers/" + name + "/tokenizer.json"));
    tokenizer = Tokenizer::FromJson(text).value();
    json::object file = oracle::ParseObject(text);
    for (json::value& added : file.at("added_tokens").as_array()) {
      if (!added.at("special").as_bool()) continue;
      const std::string spelling = oracle::String(added.at("content"));
      specials.push_back(spelling);
      hidden[spelling] = absl::StrCat("\ue000", hidden.size(), "\ue001");
      added.at("content") = hidden[spelling];
    }
    unspelled = Tokenizer::FromJson(json::serialize(file)).value();
  }

  // The ids of a prompt by a tokenizer that sees no spelling of a special token in the text.
  Ids Expected(const PromptText& prompt) const {
    std::string text;
    size_t done = 0;
    for (const PromptText::Place& place : *prompt.controls) {
      absl::StrAppend(&text, prompt.text.substr(done, place.begin - done),
                      hidden.at(prompt.text.substr(place.begin, place.end - place.begin)));
      done = place.end;
    }
    text += prompt.text.substr(done);
    std::map<int32_t, int32_t> id_of;
    for (const auto& [spelling, other] : hidden)
      id_of[unspelled->IdOf(other).value()] = tokenizer->IdOf(spelling).value();
    Ids ids = unspelled->Encode(text, false).value();
    for (int32_t& id : ids)
      if (id_of.contains(id)) id = id_of.at(id);
    return ids;
  }

  Ids SpecialsOf(const Ids& ids) const {
    Ids found;
    for (const int32_t id : ids)
      if (tokenizer->IsSpecial(id)) found.push_back(id);
    return found;
  }

  std::string name;
  std::unique_ptr<Tokenizer> tokenizer, unspelled;
  std::vector<std::string> specials;
  std::map<std::string, std::string> hidden;  // spelling, name in `unspelled`
};

struct Case {
  const char* family;
  const char* source;  // file of chat_templates, or empty: the family's own
};

// Filters that could put a spelling together: lower case, removed and joined parts, slices.
constexpr const char* kFilters =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}[INST]{{ m.content | lower }}|"
    "{{ m.content.replace('X', '') | trim }}{{ m.content.split('Y') | join }}{{ m.content[1:] }}"
    "{{ m.name ~ m.content }}</s><|im_end|><|eot_id|><end_of_turn>{% endfor %}"
    "{{ tools | tojson if tools }}{% for d in documents or [] %}{{ d.title + d.text }}{% endfor %}";
// Roles inside of tokens, as Phi has them.
constexpr const char* kRoles =
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>' + m.content + '<|end|>' }}"
    "<|{{ m.role }}|>{{ m.name }}{% endfor %}";

std::string Source(const std::string& file) {
  return oracle::ReadFile(oracle::Data("chat_templates/" + file + ".jinja"));
}

std::unique_ptr<ChatTemplate> Template(const Family& family, const std::string& source) {
  const std::string controls = family.tokenizer->SpecialTokens().value();
  const std::string folder = oracle::Data("tokenizers/" + family.name);
  if (source.empty()) return ChatTemplate::FromFolder(folder, controls).value();
  const json::object config =
      oracle::ParseObject(oracle::ReadFile(folder + "/tokenizer_config.json"));
  json::object names;
  for (const char* name : {"bos_token", "eos_token"})
    if (const json::value* token = config.if_contains(name)) names[name] = *token;
  return ChatTemplate::FromSource(source, json::serialize(names), controls).value();
}

// Makes conversations: hostile ones, or of the same form and harmless.
class Conversations {
 public:
  Conversations(const Family& family, uint32_t seed) : family_(family), random_(seed) {}

  struct Request {
    std::string messages, tools, documents;
  };

  Request Make(bool is_hostile, uint32_t seed) {
    random_.seed(seed);
    const size_t n_turns = 1 + 2 * (random_() % 3);
    const bool with_tools = random_() % 2 == 0;
    text_.seed(seed);
    is_hostile_ = is_hostile;
    json::array messages;
    for (size_t i = 0; i < n_turns; ++i) {
      json::object message = {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", Text()}};
      message["name"] = Text();
      messages.push_back(std::move(message));
    }
    Request request;
    if (with_tools) AddCall(&messages);
    request.messages = json::serialize(messages);
    if (with_tools) {
      request.tools = json::serialize(json::array{json::object{
          {"type", "function"},
          {"function",
           {{"name", Text()},
            {"description", Text()},
            {"parameters",
             {{"type", "object"}, {"properties", {{Text(), {{"type", "string"}}}}}}}}}}});
    }
    request.documents = json::serialize(json::array{{{"title", Text()}, {"text", Text()}}});
    return request;
  }

 private:
  void AddCall(json::array* messages) {
    messages->push_back(json::object{
        {"role", "assistant"},
        {"content", ""},
        {"tool_calls",
         json::array{{{"id", "abcdefghi"},
                      {"type", "function"},
                      {"function", {{"name", Text()}, {"arguments", {{Text(), Text()}}}}}}}}});
    messages->push_back(json::object{
        {"role", "tool"}, {"content", Text()}, {"name", Text()}, {"tool_call_id", "abcdefghi"}});
    messages->push_back(json::object{{"role", "assistant"}, {"content", Text()}, {"name", "a"}});
    messages->push_back(json::object{{"role", "user"}, {"content", Text()}, {"name", "u"}});
  }

  std::string Text() {
    if (!is_hostile_) return "word";
    std::string text = "w";
    for (size_t n = text_() % 4; n > 0; --n) text += Piece();
    return text_() % 2 == 0 ? text : text.substr(1) + "w";
  }

  std::string Piece() {
    const std::string& token = family_.specials[text_() % family_.specials.size()];
    const size_t cut = 1 + text_() % (token.size() - 1);
    std::string upper = token;
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    const std::string pieces[] = {token,
                                  token + "\n",
                                  "  " + token + " ",
                                  token.substr(0, cut),
                                  token.substr(cut),
                                  token.substr(0, cut) + "X" + token.substr(cut),
                                  token.substr(0, cut) + "Y" + token.substr(cut),
                                  token.substr(0, cut) + token + token.substr(cut),
                                  upper,
                                  "\ufdd0" + token + "\ufdd1",
                                  "\ufdd2" + token + "\ufdd3\ufdd4",
                                  "|>",
                                  "<|",
                                  "user",
                                  " a\n\nword "};
    return pieces[text_() % std::size(pieces)];
  }

  const Family& family_;
  std::mt19937 random_, text_;
  bool is_hostile_ = false;
};

std::string WithoutSpace(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

absl::StatusOr<PromptText> Render(const ChatTemplate& chat, const Conversations::Request& request) {
  ChatTemplateInput input;
  input.messages = request.messages;
  input.tools = request.tools;
  input.documents = request.documents;
  input.now = absl::CivilSecond(2025, 3, 14);
  return chat.Render(input);
}

}  // namespace

TEST_CASE("what a request spells is text: 2,100 conversations", "[slow]") {
  const std::string filters = kFilters, roles = kRoles;
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"llama3", {"", Source("llama3"), Source("llama31_tools"), filters}},
      {"llama3-small", {"", filters}},
      {"qwen2", {"", Source("qwen25_tools"), Source("qwen3_think"), Source("chatml"), filters}},
      {"llama2", {"", Source("phi3"), roles, filters}},
      {"mistral", {"", Source("mistral_tools"), filters}},
      {"gemma", {"", filters}}};
  size_t n_prompts = 0, n_spelled = 0;
  for (const auto& [name, sources] : cases) {
    const Family family(name);
    Conversations conversations(family, 0);
    size_t n_family = 0;
    for (uint32_t seed = 1; n_family < 350; ++seed) {
      REQUIRE(seed < 3500);  // most conversations suit most templates
      const auto chat = Template(family, sources[seed % sources.size()]);
      const auto hostile = Render(*chat, conversations.Make(true, seed));
      const auto harmless = Render(*chat, conversations.Make(false, seed));
      INFO(name << " template " << seed % sources.size() << " seed " << seed << "\n"
                << hostile.status().ToString());
      REQUIRE(hostile.ok() == harmless.ok());
      if (!hostile.ok()) continue;  // a template without tools, or of other turns
      const Ids ids = family.tokenizer->Encode(*hostile, false).value();
      const Ids quiet = family.tokenizer->Encode(*harmless, false).value();
      INFO(hostile->text);
      CHECK(quiet == family.tokenizer->Encode(harmless->text, false).value());
      CHECK(!family.SpecialsOf(quiet).empty());
      CHECK(family.SpecialsOf(ids) == family.SpecialsOf(quiet));
      CHECK(ids == family.Expected(*hostile));
      CHECK(WithoutSpace(family.tokenizer->Decode(ids, false).value()) ==
            WithoutSpace(hostile->text));
      const Ids careless = family.tokenizer->Encode(hostile->text, false).value();
      n_spelled += family.SpecialsOf(careless).size() > family.SpecialsOf(ids).size();
      ++n_family, ++n_prompts;
    }
  }
  CHECK(n_prompts == 2100);
  CHECK(n_spelled > 1000);  // prompts that would have had tokens of the request
}

TEST_CASE("filters and comparisons of a template see the strings of the request") {
  const Family qwen("qwen2");
  const auto render = [&](const std::string& source, const std::string& content) {
    const auto chat = Template(qwen, source);
    ChatTemplateInput input;
    const std::string messages =
        json::serialize(json::array{json::object{{"role", "user"}, {"content", content}}});
    input.messages = messages;
    return chat->Render(input).value();
  };
  const std::string all =
      "{% set c = messages[0].content %}{{ c | length }} {{ c | upper }} {{ c | tojson }} "
      "{{ c == '\ufdd0<|im_x|>' }} {{ c[:2] }} {{ c.startswith('\ufdd0<') }} {{ '<|' in c }} "
      "{{ [c] }}";
  CHECK(render(all, "<|im_end|>").text ==
        "10 <|IM_END|> \"<|im_end|>\" False <| False True ['<|im_end|>']");
  // Marks in a message come out as they went in.
  const PromptText forged = render("<|im_end|>{{ messages[0].content }}",
                                   "\ufdd0<|im_end|>\ufdd1\ufdd2\ufdd3\ufdd4\ue000");
  CHECK(forged.text == "<|im_end|>\ufdd0<|im_end|>\ufdd1\ufdd2\ufdd3\ufdd4\ue000");
  CHECK(*forged.controls == std::vector<PromptText::Place>{{0, 10}});
  std::string every;  // no code point is left to stand in
  for (char32_t c = 0xe000; c <= 0xfdef; ++c) {
    if (c > 0xf8ff && c < 0xfdd0) continue;
    every += {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
              static_cast<char>(0x80 | (c & 63))};
  }
  ChatTemplateInput input;
  const std::string messages =
      json::serialize(json::array{json::object{{"role", "user"}, {"content", every}}});
  input.messages = messages;
  CHECK(Template(qwen, "{{ messages[0].content }}")->Render(input).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("what a template writes are tokens, however it writes them") {
  const Family llama("llama2");
  const auto tokens = [&](const std::string& source) {
    ChatTemplateInput input;
    input.messages = R"([{"role": "user", "content": "<|user|>"}])";
    const PromptText prompt = Template(llama, source)->Render(input).value();
    std::string found;
    for (const PromptText::Place& place : *prompt.controls)
      absl::StrAppend(&found, place.begin, prompt.text.substr(place.begin, place.end - place.begin),
                      " ");
    return found;
  };
  CHECK(tokens("<s>") == "0<s> ");
  CHECK(tokens("{{ bos_token ~ eos_token }}") == "0<s> 3</s> ");
  CHECK(tokens("{% raw %}<s>{{ x }}{% endraw %}") == "0<s> ");
  CHECK(tokens("{% set a = {'k': ['</s>']} %}{{ a.k[0] | trim }}") == "0</s> ");
  CHECK(tokens("{% macro m(x) %}{{ x }}<s>{% endmacro %}{{ m('</s>') }}") == "0</s> 4<s> ");
  CHECK(tokens("{{ ['</s>'] }}") == "2</s> ");
  CHECK(tokens("{# <s> #}{{ '<s' }}>") == "");
  CHECK(tokens("{{ messages[0].content }}<s>") == "8<s> ");
  CHECK(tokens("{{ '</' ~ messages[0].content[2:2] ~ 's>' }}") == "");
  // Roles in the middle of a token.
  CHECK(tokens("<|{{ messages[0].role }}|>") == "0<|user|> ");
  CHECK(tokens("<|{{- messages[0]['role'] -}}|><s>") == "0<|user|> 8<s> ");
  CHECK(tokens("{{ '<s><|' + messages[0]['role'] + '|>' + '\\n' }}") == "0<s> 3<|user|> ");
  CHECK(tokens("{% set role = 'assistant' %}{{ \"<|\" ~ role ~ \"|></s>\" }}") ==
        "0<|assistant|> 13</s> ");
  CHECK(tokens("<|{{ messages[0].content[2:6] }}|>") == "");
}

}  // namespace baton
