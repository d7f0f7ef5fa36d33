// The table of fields as JSON Schema, for /openapi.json. Pure: any thread.
#pragma once

#include "server/api/fields/field.h"
#include "server/api/json_writer.h"

namespace baton {

// The schema of the bodies of an endpoint, as a value: every field of the table, whose absence and
// null mean the same; other names are allowed and ignored.
void WriteRequestSchema(JsonWriter& json, Endpoint endpoint);

// The bounds of a value as words: "integer from 1 to 8". With OwnRule: what its schema says.
std::string TypeWords(const FieldRule& rule);

}  // namespace baton
