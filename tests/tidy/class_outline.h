// Finds the classes of a source file and the number of functions that each declares: enough of C++
// for this code, no more. Removes comments, strings and template arguments first.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace baton {

struct ClassOutline {
  std::string name;
  int n_methods = 0;  // functions declared at the top of its body, constructors included
};

namespace outline {

// Returns the file's text without comments, preprocessor lines and quoted text.
inline std::string Plain(const SourceFile& file) {
  std::string text;
  for (const std::string& line : file.lines) {
    if (line.starts_with("#") || (line.ends_with("\\"))) continue;
    char quote = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      if (quote == 0 && line.compare(i, 2, "//") == 0) break;
      if (quote != 0 && line[i] == '\\') {
        ++i;
      } else if (quote != 0) {
        if (line[i] == quote) quote = 0;
      } else if (line[i] == '"' || (line[i] == '\'' && (i == 0 || !std::isalnum(line[i - 1])))) {
        quote = line[i];
      } else {
        text += line[i];
      }
    }
    text += '\n';
  }
  return text;
}

// Removes template arguments <...>. Operators and shifts keep their signs because no name stands
// before them.
inline std::string WithoutTemplateArguments(const std::string& statement) {
  std::string rest;
  int depth = 0;
  for (size_t i = 0; i < statement.size(); ++i) {
    const bool opens = statement[i] == '<' && i > 0 &&
                       (std::isalnum(statement[i - 1]) != 0 || rest.ends_with("template "));
    if (opens || (depth > 0 && statement[i] == '<')) {
      ++depth;
    } else if (depth > 0 && statement[i] == '>') {
      --depth;
    } else if (depth == 0) {
      rest += statement[i];
    }
  }
  return rest;
}

inline bool IsFunction(const std::string& statement) {
  const std::string plain = WithoutTemplateArguments(statement);
  const size_t call = plain.find('(');
  if (call == std::string::npos) return false;
  const size_t first = plain.find_first_not_of(" \n\t");
  for (const char* other : {"using ", "typedef ", "friend ", "static_assert", "enum ", "return "})
    if (plain.compare(first, std::string(other).size(), other) == 0) return false;
  const size_t equals = plain.find('=');
  const size_t oper = plain.find("operator");
  return equals == std::string::npos || call < equals || oper < call;
}

}  // namespace outline

inline std::vector<ClassOutline> ReadClasses(const SourceFile& file) {
  const std::string text = outline::Plain(file);
  struct Scope {
    int owner;  // index in classes, -1: no class
  };
  std::vector<ClassOutline> classes;
  std::vector<Scope> scopes;
  std::string statement;
  int parentheses = 0;
  for (const char c : text) {
    const int owner = scopes.empty() ? -1 : scopes.back().owner;
    if (c == '(') ++parentheses;
    if (c == ')') --parentheses;
    if (c == ';' && parentheses == 0) {
      if (owner >= 0 && outline::IsFunction(statement)) ++classes[owner].n_methods;
      statement.clear();
    } else if (c == '{') {
      const std::string head = outline::WithoutTemplateArguments(statement);
      const size_t word = std::min(head.rfind("class "), head.rfind("struct "));
      const bool is_enum = head.find("enum ") != std::string::npos;
      if (word != std::string::npos && !is_enum && head.find('(') == std::string::npos) {
        const size_t start = head.find(' ', word) + 1;
        std::string name = head.substr(start, head.find_first_of(" \n{", start) - start);
        if (name.ends_with(':')) name.pop_back();
        classes.push_back({name, 0});
        scopes.push_back({static_cast<int>(classes.size()) - 1});
      } else {
        if (owner >= 0 && outline::IsFunction(statement)) ++classes[owner].n_methods;
        scopes.push_back({head.find("namespace") != std::string::npos ? owner : -1});
      }
      statement.clear();
    } else if (c == '}') {
      if (!scopes.empty()) scopes.pop_back();
      statement.clear();
    } else {
      statement += c;
      for (const char* access : {"public:", "private:", "protected:"})
        if (statement.ends_with(access)) statement.clear();
    }
  }
  return classes;
}

}  // namespace baton
