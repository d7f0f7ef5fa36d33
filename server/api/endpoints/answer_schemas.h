// JSON Schemas of what the API answers, and of what requests consist of, for /openapi.json.
#pragma once

#include <span>
#include <string_view>

namespace baton {

struct NamedSchema {
  std::string_view name;  // under components/schemas
  std::string_view schema;
};
std::span<const NamedSchema> NamedSchemas();
// The schemas of /v1/responses, and of lists of what is stored.
std::span<const NamedSchema> StoredSchemas();

}  // namespace baton
