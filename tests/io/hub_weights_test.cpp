// A folder whose tensors are not those of its config.json is refused with their names.
#include "io/hub/hub_weights.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>

#include "io/hub/hub_writer.h"
#include "support.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const HubModel kModel = parse_hub_config(
    R"({"model_type": "llama", "vocab_size": 8, "max_position_embeddings": 4, "hidden_size": 4, "intermediate_size": 6,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": true})",
    "config.json");

struct Stored {
  std::string name;
  StoredType type;
  std::vector<std::int64_t> shape;
};

std::vector<Stored> right_tensors() {
  std::vector<Stored> all;
  for (const HubArray& array : hub_arrays(kModel))
    for (const HubPart& part : array.parts) all.push_back({part.name, StoredType::f32, array.stored_shape(part)});
  return all;
}

void write(const fs::path& file, const std::vector<Stored>& tensors, std::byte filling = std::byte{0}) {
  SafetensorsWriter writer(file);
  for (const Stored& tensor : tensors) writer.declare(tensor.name, tensor.type, tensor.shape);
  for (const Stored& tensor : tensors) {
    std::size_t bytes = size_of(tensor.type);
    for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::size_t>(extent);
    const std::vector<std::byte> data(bytes, filling);
    writer.write(tensor.name, data.data(), data.size());
  }
  writer.finish();
}

class HubFolder : public ::testing::Test {
 protected:
  std::string refusal() const {
    try {
      HubWeights(folder_.path(), kModel);
    } catch (const UserError& error) {
      return error.what();
    }
    return "(accepted)";
  }
  std::string refusal_of(const std::function<void(std::vector<Stored>&)>& change) const {
    std::vector<Stored> tensors = right_tensors();
    change(tensors);
    write(folder_.path() / kHubWeightsFile, tensors);
    return refusal();
  }
  void write_index(const std::string& text) const { std::ofstream(folder_.path() / kHubIndexFile) << text; }
  testing::TemporaryFolder folder_;
};

Stored& named(std::vector<Stored>& tensors, const std::string& name) {
  return *std::find_if(tensors.begin(), tensors.end(), [&](const Stored& tensor) { return tensor.name == name; });
}

TEST_F(HubFolder, ItsTensorsAreComparedWithItsConfiguration) {
  EXPECT_EQ(refusal_of([](auto&) {}), "(accepted)");
  EXPECT_THAT(refusal_of([](auto& tensors) {
                std::erase_if(tensors, [](const Stored& tensor) { return tensor.name == "model.norm.weight"; });
              }),
              HasSubstr("missing tensors: model.norm.weight"));
  EXPECT_THAT(refusal_of([](auto& tensors) {
                tensors.push_back({"model.layers.1.mlp.up_proj.weight", StoredType::f32, {6, 4}});
              }),
              HasSubstr("tensors that this model does not have: model.layers.1.mlp.up_proj.weight"));
  EXPECT_THAT(
      refusal_of([](auto& tensors) {
        named(tensors, "model.layers.0.self_attn.k_proj.weight").shape = {4, 4};
      }),
      HasSubstr("tensors of another shape: model.layers.0.self_attn.k_proj.weight (4, 4) where config.json makes "
                "it (2, 4)"));
  EXPECT_THAT(refusal_of([](auto& tensors) { named(tensors, "model.norm.weight").type = StoredType::i32; }),
              HasSubstr("neither fp32 nor bf16 nor fp16: model.norm.weight I32"));
  // Several at once, long lists cut.
  EXPECT_THAT(refusal_of([](auto& tensors) {
                tensors.resize(1);
                tensors.push_back({"x", StoredType::f32, {1}});
              }),
              HasSubstr(" and 2 more; tensors that this model does not have: x"));
}

TEST_F(HubFolder, BuffersAreNoTensorsOfAModel) {
  EXPECT_EQ(refusal_of([](auto& tensors) {
              tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", StoredType::f32, {1}});
            }),
            "(accepted)");
}

TEST_F(HubFolder, NamesMayLackTheirFirstPart) {
  EXPECT_EQ(refusal_of([](auto& tensors) {
              for (Stored& tensor : tensors) tensor.name = tensor.name.substr(std::strlen("model."));
            }),
            "(accepted)");
}

TEST_F(HubFolder, ATiedHeadOfItsOwnMustBeTheEmbedding) {
  const auto add_head = [](auto& tensors) { tensors.push_back({kHubHead, StoredType::f32, {8, 4}}); };
  EXPECT_EQ(refusal_of(add_head), "(accepted)");
  EXPECT_THAT(refusal_of([](auto& tensors) {
                tensors.push_back({kHubHead, StoredType::f32, {8, 3}});
              }),
              HasSubstr("lm_head.weight differs from model.embed_tokens.weight"));
}

TEST_F(HubFolder, FilesOfAnIndexMustHoldWhatItSays) {
  EXPECT_THAT(refusal(), HasSubstr("neither model.safetensors nor model.safetensors.index.json is here"));
  std::vector<Stored> first = right_tensors(), second = {first.back()};
  first.pop_back();
  write(folder_.path() / "a.safetensors", first);
  write(folder_.path() / "b.safetensors", second);
  std::string map;
  for (const Stored& tensor : first) map += "\"" + tensor.name + "\": \"a.safetensors\", ";
  const auto index = [&](const std::string& last) { write_index("{\"weight_map\": {" + map + last + "}}"); };
  index("\"" + second[0].name + "\": \"b.safetensors\"");
  EXPECT_EQ(refusal(), "(accepted)");
  index("\"" + second[0].name + "\": \"c.safetensors\"");
  EXPECT_THAT(refusal(), HasSubstr("c.safetensors is not in this folder"));
  index("\"" + second[0].name + "\": \"a.safetensors\"");
  EXPECT_THAT(refusal(), HasSubstr("tensor model.norm.weight is not in a.safetensors"));
  index("\"" + second[0].name + "\": \"b.safetensors\", \"y\": \"b.safetensors\"");
  EXPECT_THAT(refusal(), HasSubstr("tensor y is not in b.safetensors"));
  second.push_back({"y", StoredType::f32, {1}});
  write(folder_.path() / "b.safetensors", second);
  index("\"" + second[0].name + "\": \"b.safetensors\"");
  EXPECT_THAT(refusal(), HasSubstr("does not say that tensor y is in b.safetensors"));
  fs::resize_file(folder_.path() / "a.safetensors", 900);
  EXPECT_THAT(refusal(), HasSubstr("a.safetensors: "));
  write(folder_.path() / kHubWeightsFile, right_tensors());
  EXPECT_THAT(refusal(), HasSubstr("both model.safetensors and model.safetensors.index.json are here"));
}

TEST_F(HubFolder, IsBf16WhereAllMatricesAre) {
  const auto precision = [&](StoredType norm, StoredType head) {
    refusal_of([&](auto& tensors) {
      for (Stored& tensor : tensors) tensor.type = tensor.shape.size() == 1 ? norm : StoredType::bf16;
      named(tensors, "model.embed_tokens.weight").type = head;
    });
    return HubWeights(folder_.path(), kModel).precision();
  };
  EXPECT_EQ(precision(StoredType::f32, StoredType::bf16), DType::bf16);
  EXPECT_EQ(precision(StoredType::bf16, StoredType::f16), DType::f32);
}

TEST(HubWriter, CutsFilesBetweenTensors) {
  const testing::TemporaryFolder folder;
  std::vector<float> values(100);
  const auto files = [&](std::int64_t shard_bytes) {
    const fs::path out = folder.path() / std::to_string(shard_bytes);
    fs::create_directories(out);
    HubWriter writer(out, {{"a", {10, 10}}, {"b", {10}}, {"c", {10}}, {"d", {100}}}, shard_bytes);
    writer.write({values.data(), DType::f32, {10, 10}});
    for (const std::int64_t length : {10, 10, 100}) writer.write({values.data(), DType::f32, {length}});
    writer.finish();
    return writer.files();
  };
  EXPECT_EQ(files(1000), 1u);  // 400 + 40 + 40 + 400
  EXPECT_TRUE(fs::exists(folder.path() / "1000" / kHubWeightsFile));
  EXPECT_EQ(files(480), 2u);
  EXPECT_EQ(files(479), 2u);  // a b | c d
  EXPECT_EQ(files(1), 4u);
  const SafetensorsFile second(folder.path() / "479" / "model-00002-of-00002.safetensors");
  EXPECT_NE(second.find("c"), nullptr);
  EXPECT_EQ(second.metadata().at("format"), "pt");
}

}  // namespace
}  // namespace filigree
