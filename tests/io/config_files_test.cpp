// The configurations that are shipped.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/config_toml.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

Config shipped(const std::string& name) {
  return read_config(fs::path(FILIGREE_SOURCE_DIR) / "configs" / name);
}

std::vector<std::string> changed_keys(const Config& a, const Config& b) {
  std::vector<std::string> keys;
  for (const ConfigChange& change : difference(a, b)) keys.push_back(change.key);
  return keys;
}

TEST(ShippedConfigs, AllAreValid) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(FILIGREE_SOURCE_DIR) / "configs"))
    if (entry.path().extension() == ".toml") {
      EXPECT_NO_THROW(read_config(entry.path())) << entry.path();
      ++files;
    }
  EXPECT_GE(files, 5);
}

// And in the learning rate, where each method's own best one is known.
TEST(ShippedConfigs, SparseRunsDifferFromTheirBaselineInTheMethodOnly) {
  EXPECT_EQ(changed_keys(shipped("quickstart-dense.toml"), shipped("quickstart-slope.toml")),
            (std::vector<std::string>{"train.lr", "weights.method"}));
  EXPECT_EQ(changed_keys(shipped("quickstart-slope.toml"), shipped("quickstart-block.toml")),
            (std::vector<std::string>{"weights.method", "weights.block"}));
  EXPECT_EQ(changed_keys(shipped("gpt2-124m-dense.toml"), shipped("gpt2-124m-slope.toml")),
            (std::vector<std::string>{"weights.method", "adapters.rank"}));
}

TEST(ShippedConfigs, DataStandsWhereTheFilesSay) {
  const fs::path root = fs::path(FILIGREE_SOURCE_DIR);
  const Config quick = shipped("quickstart-slope.toml");
  EXPECT_EQ(quick.data.train, std::vector<std::string>{(root / "data/quickstart/train*.bin").string()});
  EXPECT_EQ(quick.data.val, std::vector<std::string>{(root / "data/quickstart/val*.bin").string()});
  EXPECT_EQ(quick.data.tokenizer, "") << "the data says it";
  const Config tiny = shipped("tiny-slope.toml");
  ASSERT_EQ(tiny.data.train.size(), 1u);
  EXPECT_GE(fs::file_size(tiny.data.train[0]), 2000u);
}

}  // namespace
}  // namespace filigree
