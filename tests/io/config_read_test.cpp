#include <gtest/gtest.h>

#include "io/config_toml.h"

namespace filigree {
namespace {
TEST(Shipped, Read) {
  for (const char* name :
       {"quickstart-dense", "quickstart-slope", "tiny-slope", "gpt2-124m-dense", "gpt2-124m-slope"}) {
    const Config config = read_config(std::string(FILIGREE_SOURCE_DIR) + "/configs/" + name + ".toml");
    const std::string text = write_config(config);
    EXPECT_TRUE(difference(config, parse_config(text, "x", "/")).empty());
    EXPECT_EQ(write_config(parse_config(text, "x", "/")), text) << text;
  }
}
}  // namespace
}  // namespace filigree
