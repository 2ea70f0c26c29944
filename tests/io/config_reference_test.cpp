// docs/configuration.md is what the table of keys says.
#include "io/config_reference.h"

#include "io/atomic_file.h"
#include "io/config_keys.h"
#include "support.h"

namespace filigree {
namespace {

TEST(ConfigReference, TheDocumentationIsUpToDate) {
  const std::string page = read_file(FILIGREE_SOURCE_DIR "/docs/configuration.md", 1 << 20);
  EXPECT_TRUE(page == config_reference())
      << "docs/configuration.md is out of date; run: build/filigree train --keys >docs/configuration.md";
}

TEST(ConfigReference, EveryKeyIsThereWithItsMeaning) {
  const std::string text = config_reference();
  for (const ConfigKey& key : config_keys()) {
    EXPECT_NE(text.find("| `" + std::string(key.name) + "` |"), std::string::npos) << key.name;
    EXPECT_FALSE(key.doc.empty()) << key.name;
  }
  EXPECT_NE(text.find("| `train.steps` | **r** | *required* | an integer of at least 1 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| `model.width` |  | *preset* |"), std::string::npos) << text;
}

}  // namespace
}  // namespace filigree
