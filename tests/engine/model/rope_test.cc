// Frequencies and tables of the rotary embedding, by the rules of each kind of scaling.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/engine/model/model_configs.h"

namespace baton {

TEST_CASE("rope frequencies follow the llama3 rule") {
  RopeDesc rope;
  rope.theta = 500000;
  const std::vector<double> plain = RopeFrequencies(rope, 64);
  CHECK(plain[0] == 1.0);
  CHECK(plain[16] == Approx(std::pow(500000.0, -0.5)));
  rope.scaling = RopeDesc::Scaling::kLlama3;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_position_embeddings = 8192;
  const std::vector<double> scaled = RopeFrequencies(rope, 64);
  const double pi = std::acos(-1.0);
  for (int i = 0; i < 32; ++i) {
    const double wavelength = 2 * pi / plain[i];
    double expected = plain[i];
    if (wavelength > 8192.0) {
      expected = plain[i] / 8;
    } else if (wavelength > 8192.0 / 4) {
      const double smooth = (8192.0 / wavelength - 1) / (4 - 1);
      expected = (1 - smooth) * plain[i] / 8 + smooth * plain[i];
    }
    CHECK(scaled[i] == Approx(expected).epsilon(1e-14));
  }
}

TEST_CASE("linear rope divides every frequency") {
  RopeDesc rope;
  const std::vector<double> plain = RopeFrequencies(rope, 64);
  rope.scaling = RopeDesc::Scaling::kLinear;
  rope.factor = 4;
  const std::vector<double> scaled = RopeFrequencies(rope, 64);
  for (int i = 0; i < 32; ++i) CHECK(scaled[i] == plain[i] / 4);
}

TEST_CASE("yarn keeps fast pairs, stretches slow ones and blends between") {
  RopeDesc rope;
  const std::vector<double> plain = RopeFrequencies(rope, 128);
  rope.scaling = RopeDesc::Scaling::kYarn;
  rope.factor = 8;
  rope.original_max_position_embeddings = 4096;
  const std::vector<double> scaled = RopeFrequencies(rope, 128);
  // 32 turns in 4,096 positions are made between pairs 20 and 21, one turn between 45 and 46.
  for (int i = 0; i <= 20; ++i) CHECK(scaled[i] == plain[i]);
  for (int i = 21; i < 46; ++i) {
    const double stretched = (i - 20) / 26.0;
    CHECK(scaled[i] == Approx(plain[i] * (1 - stretched + stretched / 8)).epsilon(1e-14));
  }
  for (int i = 46; i < 64; ++i) CHECK(scaled[i] == plain[i] / 8);

  CHECK(YarnAttentionFactor(8, 0, 0) == Approx(0.1 * std::log(8.0) + 1));
  CHECK(YarnAttentionFactor(8, 0.5, 0) == YarnAttentionFactor(8, 0, 0));  // both or none
  CHECK(YarnAttentionFactor(8, 0.5, 2) ==
        Approx((0.05 * std::log(8.0) + 1) / (0.2 * std::log(8.0) + 1)));
  CHECK(YarnAttentionFactor(1, 0, 0) == 1.0);
}

TEST_CASE("dynamic rope has the theta of the served context") {
  RopeDesc rope;
  rope.original_max_position_embeddings = 128;
  const std::vector<double> plain = RopeFrequencies(rope, 64);
  rope.scaling = RopeDesc::Scaling::kDynamic;
  rope.factor = 2;
  for (const double served : {0.0, 100.0, 128.0}) {
    rope.served_positions = served;
    CHECK(RopeFrequencies(rope, 64) == plain);
  }
  rope.served_positions = 512;
  RopeDesc slower;
  slower.theta = 10000 * std::pow(7.0, 64.0 / 62.0);  // 2 * 512 / 128 - (2 - 1) = 7
  CHECK(RopeFrequencies(rope, 64) == RopeFrequencies(slower, 64));
}

TEST_CASE("what rope scaling makes of the context") {
  const auto context = [](const std::string& scaling) {
    const absl::StatusOr<ModelDesc> model =
        ModelDesc::FromJson(ConfigWith("rope_scaling", scaling), "config.json");
    REQUIRE(model.ok());
    return std::pair(model->max_positions, model->max_model_context());
  };
  CHECK(context("null") == std::pair(256, 256));
  CHECK(context("{\"type\": \"linear\", \"factor\": 2}") == std::pair(256, 256));
  CHECK(context("{\"type\": \"yarn\", \"factor\": 4}") == std::pair(1024, 1024));
  CHECK(context("{\"type\": \"yarn\", \"factor\": 4,"
                " \"original_max_position_embeddings\": 32}") == std::pair(256, 256));
  CHECK(context("{\"type\": \"dynamic\", \"factor\": 4}") == std::pair(256, 1 << 21));
}

TEST_CASE("the rope table is the rounded cosine and sine of position times frequency") {
  ModelDesc model = *ModelDesc::FromFolder(kModels + "llama32");
  model.max_positions = 100;
  const RopeTable table = RopeTable::For(model.rope, model.head_dim, model.max_positions);
  const std::vector<double> frequencies = RopeFrequencies(model.rope, model.head_dim);
  REQUIRE(table.cos.size() == 100 * 32);
  for (int position : {0, 1, 63, 99}) {
    for (int i = 0; i < 32; ++i) {
      CHECK(table.cos[position * 32 + i] ==
            static_cast<float>(std::cos(position * frequencies[i])));
      CHECK(table.sin[position * 32 + i] ==
            static_cast<float>(std::sin(position * frequencies[i])));
    }
  }
}

}  // namespace baton
