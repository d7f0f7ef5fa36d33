#include "engine/model/model_path.h"

#include <filesystem>
#include <string_view>

namespace baton {
namespace {

constexpr std::string_view kRandom = "random:";

}  // namespace

ModelPath ParseModelPath(const std::string& model) {
  if (model.starts_with(kRandom)) return {ModelForm::kRandom, model.substr(kRandom.size())};
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(model, error);
  return {is_file ? ModelForm::kGgufFile : ModelForm::kFolder, model};
}

std::string RandomModelName(const std::string& config) { return std::string(kRandom) + config; }

}  // namespace baton
