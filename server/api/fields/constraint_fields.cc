// Rows of structured output, under the names of all servers that know it. All are refused: an
// answer that only happens to be valid is worse than none.
#include "server/api/fields/field.h"

namespace baton {

std::span<const Field> ConstraintFields() {
  static const RefusedRule kRefused{"answers cannot be constrained yet", {}};
  static const RefusedRule kUnlessEmpty{kRefused.why, {"\"\"", "{}", "[]"}};
  static const std::vector<Field> kRows = {
      {"response_format", kAtGeneration, RefusedRule{kRefused.why, {R"({"type":"text"})"}}, "", ""},
      {"structured_outputs", kAtGeneration, kRefused, "", ""},
      {"guided_json", kAtGeneration, kRefused, "", ""},
      {"guided_regex", kAtGeneration, kRefused, "", ""},
      {"guided_choice", kAtGeneration, kRefused, "", ""},
      {"guided_grammar", kAtGeneration, kRefused, "", ""},
      {"guided_json_object", kAtGeneration, RefusedRule{kRefused.why, {"false"}}, "", ""},
      {"guided_decoding_backend", kAtGeneration, kRefused, "", ""},
      {"guided_whitespace_pattern", kAtGeneration, kRefused, "", ""},
      {"structural_tag", kAtGeneration, kRefused, "", ""},
      {"regex", kAtGeneration, kUnlessEmpty, "", ""},
      {"ebnf", kAtGeneration, kUnlessEmpty, "", ""},
      {"json_schema", kAtGeneration, kUnlessEmpty, "", ""},
      {"grammar", kAtGeneration, kUnlessEmpty, "", ""},
      {"grammar_lazy", kAtGeneration, RefusedRule{kRefused.why, {"false"}}, "", ""},
      {"grammar_triggers", kAtGeneration, kUnlessEmpty, "", ""},
  };
  return kRows;
}

}  // namespace baton
