// encode_lines FOLDER: encodes texts with the tokenizer of a folder, for tokenizer_reference.py.
// Reads a JSON string per line, and writes for each a line {"ids", "plain", "decoded",
// "decoded_all"}: the ids with what the tokenizer adds and without, and the first ones' text
// without special tokens and with them.
#include <boost/json.hpp>
#include <iostream>
#include <string>

#include "text/tokenizer.h"

int main(int argc, char** argv) {
  namespace json = boost::json;
  if (argc != 2) {
    std::cerr << "usage: encode_lines FOLDER <texts >ids\n";
    return 2;
  }
  const auto tokenizer = baton::Tokenizer::FromFolder(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const json::value text = json::parse(line);
    const std::string_view bytes(text.as_string());
    const auto ids = (*tokenizer)->Encode(bytes, true), plain = (*tokenizer)->Encode(bytes, false);
    if (!ids.ok() || !plain.ok()) {
      std::cerr << ids.status() << " " << plain.status() << " " << line << "\n";
      return 1;
    }
    std::cout << json::serialize(json::object{
                     {"ids", json::value_from(*ids)},
                     {"plain", json::value_from(*plain)},
                     {"decoded", (*tokenizer)->Decode(*ids, true).value()},
                     {"decoded_all", (*tokenizer)->Decode(*ids, false).value()},
                 })
              << "\n";
  }
  return 0;
}
