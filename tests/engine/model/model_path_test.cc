#include "engine/model/model_path.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("a model is named by a folder, a file, or random: and a config") {
  const ModelPath folder = ParseModelPath(BATON_SOURCE_DIR "/models/demo");
  CHECK(folder.form == ModelForm::kFolder);
  CHECK(folder.path == BATON_SOURCE_DIR "/models/demo");
  CHECK(ParseModelPath("/no/such/folder").form == ModelForm::kFolder);
  CHECK(ParseModelPath("").form == ModelForm::kFolder);

  const std::string config = BATON_SOURCE_DIR "/models/demo/config.json";
  CHECK(ParseModelPath(config).form == ModelForm::kGgufFile);
  const ModelPath random = ParseModelPath(RandomModelName(config));
  CHECK(random.form == ModelForm::kRandom);
  CHECK(random.path == config);
  CHECK(RandomModelName(config) == "random:" + config);
  CHECK(ParseModelPath("random:/no/such/config").form == ModelForm::kRandom);
}

}  // namespace
}  // namespace baton
