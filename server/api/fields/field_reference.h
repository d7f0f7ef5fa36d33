// docs/API.md, written from the table of fields; a test holds the page equal. Pure: any thread.
#pragma once

#include <string>

namespace baton {

// The sections about fields: honoured ones by endpoint, those without effect, refused ones.
std::string FieldReference();

}  // namespace baton
