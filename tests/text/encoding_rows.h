// The reference strings of a tokenizer (data/tokenizers/NAME/encode.jsonl.gz), compared with a
// Tokenizer.
#pragma once

#include <string>

#include "tests/text/oracle.h"
#include "text/tokenizer.h"

namespace baton::oracle {

// Checks that every string gives its ids, and the ids give their text. Returns the number of
// strings.
inline size_t CheckEncodings(const Tokenizer& tokenizer, const std::string& name) {
  size_t wrong = 0, rows = 0;
  for (const json::object& row : ReadLines(Data("tokenizers/" + name + "/encode.jsonl.gz"))) {
    const std::string text = String(row.at("text"));
    const std::vector<int32_t> ids = Ids(row.at("ids"));
    const bool right = tokenizer.Encode(text, true).value() == ids &&
                       tokenizer.Encode(text, false).value() == Ids(row.at("ids_plain")) &&
                       tokenizer.Decode(ids, true).value() == String(row.at("decoded")) &&
                       tokenizer.Decode(ids, false).value() == String(row.at("decoded_all"));
    if (!right && wrong++ < 3) UNSCOPED_INFO(name << " row " << rows << ": " << text);
    ++rows;
  }
  INFO(name);
  CHECK(wrong == 0);
  return rows;
}

}  // namespace baton::oracle
