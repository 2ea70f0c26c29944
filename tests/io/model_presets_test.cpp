#include "io/model_presets.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "io/model_layers.h"

namespace filigree {
namespace {

ModelConfig resolved(std::string_view name) {
  ModelConfig model = model_preset(name).value();
  resolve_shape(model);
  return model;
}

// Parameters of the released checkpoints, as counted from their tensors; a tied head once. OPT's position table has two
// rows that no token uses: they are not ours.
TEST(ModelPresets, ParameterCountsAreThePublishedOnes) {
  const std::map<std::string, std::int64_t> published = {
      {"gpt2-124m", 124'439'808},   {"gpt2-355m", 354'823'168},    {"gpt2-774m", 774'030'080},
      {"gpt2-1.5b", 1'557'611'200}, {"opt-125m", 125'239'296},     {"opt-1.3b", 1'315'758'080},
      {"opt-2.7b", 2'651'596'800},  {"opt-6.7b", 6'658'473'984},   {"opt-13b", 12'853'473'280},
      {"opt-30b", 29'974'540'288},  {"llama-3-8b", 8'030'261'248}, {"mistral-7b", 7'241'732'096},
  };
  for (const auto& [name, count] : published) {
    const ModelConfig model = resolved(name);
    const std::int64_t unused = model.arch == "opt" ? 2 * model.width : 0;
    EXPECT_EQ(parameter_count(model) + unused, count) << name;
  }
  EXPECT_NEAR(static_cast<double>(parameter_count(resolved("gpt2-2.0b"))), 2.0e9, 0.03e9);
  EXPECT_NEAR(static_cast<double>(parameter_count(resolved("opt-66b"))), 66e9, 0.5e9);  // as the paper's table rounds
}
}  // namespace
}  // namespace filigree
