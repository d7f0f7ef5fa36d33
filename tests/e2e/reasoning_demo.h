// The demo model as one that reasons: two of its tokens are the tags of reasoning, and its template
// begins each answer inside them.
#pragma once

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_replace.h"
#include "common/check.h"
#include "tests/support/temp_folder.h"

namespace baton {

// Writes the model into the folder and returns the folder's path.
inline std::string MakeReasoningDemo(const TempFolder& folder) {
  const std::filesystem::path demo = BATON_SOURCE_DIR "/models/demo";
  const auto read = [&](const char* name) {
    std::ifstream in(demo / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors"})
    folder.Link(name, demo / name);
  folder.Write("tokenizer.json",
               absl::StrReplaceAll(read("tokenizer.json"),
                                   {{"<tools>", "<think>"}, {"</tools>", "</think>"}}));
  boost::json::value config = boost::json::parse(read("tokenizer_config.json"));
  std::string source(config.at("chat_template").as_string());
  // The last words of the template, where an answer begins.
  const std::string kBegin = "{{- '<|im_start|>assistant\\n' }}{%- endif %}";
  const size_t at = source.rfind(kBegin);
  BATON_CHECK(at != std::string::npos);
  source.replace(at, kBegin.size(), "{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}");
  config.as_object()["chat_template"] = source;
  folder.Write("tokenizer_config.json", boost::json::serialize(config));
  return folder.path();
}

}  // namespace baton
