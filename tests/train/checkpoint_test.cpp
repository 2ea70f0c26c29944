#include "train/checkpoint.h"

#include "tiny_run.h"
#include "train/model_loading.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using testing::file_bytes;

class DamagedCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::train_tiny(testing::tiny_run_config(folder_.path(), {"train.steps=2", "eval.every=0"}),
                        folder_.path() / "run");
    checkpoint_ = checkpoint_path(folder_.path() / "run", 2);
  }
  std::string refusal() {
    try {
      CheckpointReader reader(checkpoint_);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  void overwrite(const char* file, std::size_t offset, char byte) {
    std::fstream stream(checkpoint_ / file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(byte);
  }
  testing::TemporaryFolder folder_;
  fs::path checkpoint_;
};

TEST_F(DamagedCheckpoint, IsFineAsWritten) {
  EXPECT_EQ(refusal(), "");
}

TEST_F(DamagedCheckpoint, AFlippedByteIsFound) {
  const std::string bytes = file_bytes(checkpoint_ / "optimizer.safetensors");
  overwrite("optimizer.safetensors", bytes.size() - 100, static_cast<char>(bytes[bytes.size() - 100] ^ 1));
  EXPECT_NE(refusal().find("optimizer.safetensors: its checksum is wrong"), std::string::npos) << refusal();
}

TEST_F(DamagedCheckpoint, ATruncatedFileIsFound) {
  fs::resize_file(checkpoint_ / "model.safetensors", 1000);
  EXPECT_NE(refusal().find("model.safetensors: 1000 bytes"), std::string::npos) << refusal();
}

TEST_F(DamagedCheckpoint, AMissingFileIsFound) {
  fs::remove(checkpoint_ / "model.safetensors");
  EXPECT_NE(refusal().find("model.safetensors: missing"), std::string::npos) << refusal();
}

TEST_F(DamagedCheckpoint, AStateOfAnotherKindIsFound) {
  for (const char* text : {"", "{", "[]", "{\"format\": 1}", "{\"format\": \"x\"}"}) {
    std::ofstream(checkpoint_ / "state.json") << text;
    EXPECT_NE(refusal().find("state.json"), std::string::npos) << text;
  }
  std::ofstream(checkpoint_ / "state.json") << "{\"format\": 99}";
  EXPECT_NE(refusal().find("format version 99"), std::string::npos) << refusal();
}

TEST_F(DamagedCheckpoint, AlgorithmsOfDenseProductsAreRead) {
  std::string state = file_bytes(checkpoint_ / "state.json");
  EXPECT_TRUE(CheckpointReader(checkpoint_).state().dense_products.entries.empty());
  const std::string none = "\"made_by\": \"\",\n    \"algorithms\": {}";
  ASSERT_NE(state.find(none), std::string::npos) << state;
  std::ofstream(checkpoint_ / "state.json") << std::string(state).replace(
      state.find(none), none.size(), R"("made_by": "library 3", "algorithms": {"8x8x8": "some text"})");
  const MatmulChoices read = CheckpointReader(checkpoint_).state().dense_products;
  EXPECT_EQ(read.made_by, "library 3");
  EXPECT_EQ(read.entries, (std::map<std::string, std::string>{{"8x8x8", "some text"}}));
  std::ofstream(checkpoint_ / "state.json") << state.replace(state.find("dense_products"), 14, "something_else");
  EXPECT_TRUE(CheckpointReader(checkpoint_).state().dense_products.entries.empty());
}

TEST_F(DamagedCheckpoint, ATokenizerOfAnotherModelIsRefused) {
  std::ofstream(checkpoint_ / "tokenizer.model", std::ios::app) << "x";
  const auto device = Device::cpu();
  EXPECT_THROW(load_model(*device, checkpoint_, {}), UserError);
}

TEST(FindCheckpoint, SaysWhatIsMissing) {
  const testing::TemporaryFolder folder;
  EXPECT_THROW(find_checkpoint(folder.path() / "nothing"), UserError);
  EXPECT_THROW(find_checkpoint(folder.path()), UserError);
  // A folder that was being written when the machine stopped has another name.
  fs::create_directories(folder.path() / "checkpoints" / "step-00000003.tmp");
  fs::create_directories(folder.path() / "checkpoints" / "step-00000002");
  EXPECT_EQ(newest_checkpoint(folder.path())->filename(), "step-00000002");
}

}  // namespace
}  // namespace filigree
