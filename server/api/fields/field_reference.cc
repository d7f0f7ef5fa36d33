#include "server/api/fields/field_reference.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/api/fields/field_schema.h"

namespace baton {
namespace {

struct Place {
  EndpointSet endpoint;
  const char* path;
};
constexpr Place kPlaces[] = {{kAtCompletions, "`/v1/completions`"},
                             {kAtChat, "`/v1/chat/completions`"},
                             {kAtResponses, "`/v1/responses`"},
                             {kAtStoredChat, "`/v1/chat/completions/{id}`"},
                             {kAtConversation, "`/v1/messages`, `/v1/messages/count_tokens`"},
                             {kAtTokenize, "`/tokenize`"},
                             {kAtDetokenize, "`/detokenize`"},
                             {kAtApplyTemplate, "`/apply-template`"}};

std::string Cell(std::string text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string PathsOf(EndpointSet endpoints) {
  std::vector<std::string> names;
  if ((endpoints & kAtCompletions) != 0) names.emplace_back("completions");
  if ((endpoints & kAtChat) != 0) names.emplace_back("chat");
  if ((endpoints & kAtResponses) != 0) names.emplace_back("responses");
  if ((endpoints & kAtAnthropic) != 0) names.emplace_back("messages");
  return names.size() == 3 ? "all three" : absl::StrJoin(names, ", ");
}

std::string HonouredRow(const Field& field) {
  return absl::StrCat("| `", field.name, "` | ", Cell(TypeWords(field.rule)), " | ",
                      Cell(field.preset), " | ", Cell(field.help), " |\n");
}

bool IsHonoured(const Field& field) {
  return !std::holds_alternative<RefusedRule>(field.rule) &&
         !std::holds_alternative<NoEffectRule>(field.rule);
}

// Whether /v1/completions and the chat both take it: these fields are told once.
bool IsShared(const Field& field) { return (field.endpoints & kAtGeneration) == kAtGeneration; }

// A table of the honoured fields that `fits` names.
template <typename Fits>
void AppendHonoured(std::string* page, const char* title, const Fits& fits) {
  absl::StrAppend(page, "\n### ", title,
                  "\n\n| field | value | default | meaning |\n|---|---|---|---|\n");
  for (const Field& field : AllFields())
    if (IsHonoured(field) && fits(field)) page->append(HonouredRow(field));
}

}  // namespace

std::string FieldReference() {
  std::string page;
  AppendHonoured(&page, "`/v1/completions` and `/v1/chat/completions`", IsShared);
  for (const Place& place : kPlaces) {
    const bool generates = (place.endpoint & kAtGeneration) != 0;
    AppendHonoured(&page, place.path, [&](const Field& field) {
      return (field.endpoints & place.endpoint) != 0 && !(generates && IsShared(field));
    });
  }
  page.append(
      "\n## Fields without effect\n\nThey are taken, whatever their value, and change nothing.\n\n"
      "| field | why |\n|---|---|\n");
  for (const Field& field : AllFields())
    if (std::holds_alternative<NoEffectRule>(field.rule))
      absl::StrAppend(&page, "| `", field.name, "` | ", Cell(field.help), " |\n");
  page.append(
      "\n## Fields that are refused\n\nOther servers shape their answers by these. Here they are a "
      "400 with code `unsupported_parameter`,\nunless they are null or have a value that changes "
      "nothing. So is a field that another endpoint with\ngenerated answers takes and this one "
      "does not know, unless its value asks for nothing\nat its own endpoint.\n\n"
      "| field | at | taken | why |\n|---|---|---|---|\n");
  for (const Field& field : AllFields()) {
    const auto* refused = std::get_if<RefusedRule>(&field.rule);
    if (refused == nullptr) continue;
    std::string taken;
    for (const std::string_view value : refused->neutral)
      absl::StrAppend(&taken, taken.empty() ? "`" : ", `", std::string(value), "`");
    const std::string at = PathsOf(field.endpoints);
    absl::StrAppend(&page, "| `", field.name, "` | ", at.empty() ? "tokenize" : at, " | ",
                    Cell(taken), " | ", Cell(refused->why), " |\n");
  }
  return page;
}

}  // namespace baton
