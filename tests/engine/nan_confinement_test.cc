// A request whose numbers overflow harms nobody: rows beside it, and whoever gets its pages next,
// have the bits that they would have had. In this model one token does it: the KV of a sequence
// that has it is infinite, and its logits are NaN.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/engine/checkpoint/checkpoint_writer.h"
#include "tests/engine/invariance_runs.h"

namespace baton {
namespace {

constexpr int32_t kPoison = 17;  // the token
constexpr int64_t kDim = 3;      // of the hidden state, which it alone has in the first layer

float* ValuesOf(FileTensor& tensor) {
  REQUIRE(tensor.dtype == "F32");
  return reinterpret_cast<float*>(tensor.bytes.data());
}

// Random weights, of which those that read kDim for keys and values of the first layer are huge.
void WriteModel(const TempFolder& folder, const std::string& config) {
  FileTensors tensors = RandomCheckpoint(config, 7);
  int n_huge = 0;
  for (auto& [name, tensor] : tensors) {
    const bool is_embedding = name.ends_with("embed_tokens.weight");
    const bool is_kv = name.find("layers.0.self_attn.") != std::string::npos &&
                       (name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight") ||
                        name.ends_with("kv_a_proj_with_mqa.weight"));
    if (!is_embedding && !is_kv) continue;
    n_huge += is_kv;
    float* const values = ValuesOf(tensor);
    for (int64_t row = 0; row < tensor.shape[0]; ++row) {
      const float of_embedding = row == kPoison ? 1.0f : 0.0f;
      values[row * tensor.shape[1] + kDim] = is_embedding ? of_embedding : 1e38f;
    }
  }
  REQUIRE(n_huge >= 1);
  WriteCheckpoint(folder, ReadFileText(config), tensors);
}

// Requests with the token; together they want nearly all pages.
std::vector<LocalRequest> Poisoned(const std::vector<LocalRequest>& clean) {
  std::vector<LocalRequest> requests = clean;
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].prompt[i % requests[i].prompt.size()] = kPoison;
  return requests;
}

void CheckConfined(LocalEngine& engine, const std::vector<LocalRequest>& clean,
                   const Trace& reference) {
  const std::vector<LocalRequest> poisoned = Poisoned(clean);
  const absl::StatusOr<std::vector<Generation>> nan = engine.Generate(poisoned, 16);
  REQUIRE(nan.ok());
  int n_nan = 0;
  for (const Generation& generation : *nan) {
    n_nan += std::isnan(generation.last_logits[0]);
    CHECK(generation.tokens.size() == 6);
  }
  CHECK(n_nan > 0);  // int8 KV makes some infinities finite
  CHECK((Run(engine, clean, static_cast<int>(clean.size()), 16) == reference));  // in its pages

  std::vector<LocalRequest> both;  // beside each other
  for (size_t i = 0; i < clean.size(); ++i) both.insert(both.end(), {poisoned[i], clean[i]});
  const Trace trace = Run(engine, both, static_cast<int>(both.size()), 16);
  for (size_t i = 0; i < clean.size(); ++i) CHECK((trace[2 * i + 1] == reference[i]));
}

}  // namespace

TEST_CASE("a request with infinite keys and values changes no bit of others") {
  const auto [name, config] = GENERATE(
      table<std::string, std::string>({{"llama", "/shapes/llama-tiny.json"},
                                       {"windows and soft caps", "/models/gemma2/config.json"},
                                       {"experts", "/models/mixtral/config.json"},
                                       {"latents", "/models/deepseek_v2_lite/config.json"}}));
  const Precision precision =
      GENERATE(values<Precision>({{"bf16"}, {"fp32"}, {"bf16", "int8"}, {"int8"}}));
  INFO(name << " " << precision.Name());
  const TempFolder folder;
  WriteModel(folder, BATON_TEST_DATA + config);
  std::vector<LocalRequest> clean = MakeRequests(300, 8);
  for (LocalRequest& request : clean)
    for (int32_t& token : request.prompt) token = token == kPoison ? kPoison + 1 : token;

  std::optional<Trace> reference;
  const auto check = [&](const std::string& path, LocalEngine& engine) {
    INFO(path);
    if (!reference) reference = Run(engine, clean, 1, 0);
    CheckConfined(engine, clean, *reference);
  };
  for (const Isa isa : precision.dtype == "fp32" ? std::vector{Isa::kAvx2} : Paths())
    check(std::string(IsaName(isa)), *MakeEngine(folder.path(), {isa, 2, 16}, precision));
  if (precision.dtype != "bf16" || name == "experts") return;
  for (KernelPath& path : EmulatedPaths())
    check(path.name,
          *MakeEngine(folder.path(), {Isa::kAvx2, 1, 16}, precision, std::move(path.kernels)));
}

}  // namespace baton
