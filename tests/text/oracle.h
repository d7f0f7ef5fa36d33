// Reference data for the tests of this room: files, gzipped JSON lines.
#pragma once

#include <zlib.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace baton::oracle {

namespace json = boost::json;

inline std::string Data(const std::string& path) {
  return std::string(BATON_TEST_DATA) + "/" + path;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  INFO(path);
  REQUIRE(file.good());
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

inline std::string ReadGzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  INFO(path);
  REQUIRE(file != nullptr);
  std::string content, block(1 << 16, '\0');
  for (int got; (got = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0;)
    content.append(block, 0, static_cast<size_t>(got));
  gzclose(file);
  return content;
}

inline std::string String(const json::value& value) { return std::string(value.as_string()); }

inline json::object ParseObject(const std::string& text) { return json::parse(text).as_object(); }

inline std::vector<json::object> ReadLines(const std::string& path) {
  std::vector<json::object> rows;
  std::istringstream lines(ReadGzip(path));
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) rows.push_back(ParseObject(line));
  REQUIRE(!rows.empty());
  return rows;
}

inline std::vector<int32_t> Ids(const json::value& value) {
  std::vector<int32_t> ids;
  for (const json::value& id : value.as_array()) ids.push_back(static_cast<int32_t>(id.as_int64()));
  return ids;
}

inline std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

}  // namespace baton::oracle
