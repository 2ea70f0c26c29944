// Hugging Face folders in and out: tiny models of the transformers library with the logits that it gave
// (tests/hub/cases, made by scripts/hub/check.py --record), and exports of what was trained here.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "io/hub/hub_weights.h"
#include "tiny_run.h"
#include "train/hub_export.h"
#include "train/hub_import.h"
#include "train/hub_source.h"
#include "train/model_loading.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using testing::file_bytes;
using ::testing::HasSubstr;
using testing::tiny_run_config;
using testing::train_tiny;

fs::path case_folder(const std::string& name) {
  return fs::path(FILIGREE_SOURCE_DIR) / "tests" / "hub" / "cases" / name;
}

// (B · S, V)
std::vector<double> logits_of(Device& device, Transformer& model, const Tensor& tokens) {
  const Shape shape{tokens.count(), model.model().vocab};
  const OwnedTensor logits = device.memory().tensor(Purpose::data, DType::f32, shape);
  Activations activations(device, model.model(), DType::f32, tokens.shape[0], tokens.shape[1], Recompute::inference);
  model.logits(device, activations, tokens, logits);
  return testing::values_of(logits);
}

// The dense model of a folder of theirs.
Transformer hub_model(Device& device, const fs::path& folder) {
  const HubSource source(folder);
  Config config = source.config();
  config.run.precision = DType::f32;
  Transformer model(device, config, Mode::inference, false);
  model.load_initial(device, source, config, false);
  return model;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

OwnedTensor some_tokens(Device& device, std::int64_t vocab, std::int64_t positions) {
  OwnedTensor tokens = device.memory().tensor(Purpose::data, DType::i32, {2, positions});
  for (std::int64_t i = 0; i < tokens.view().count(); ++i)
    testing::store(tokens, i, static_cast<double>((i * i * 7 + 3) % vocab));
  return tokens;
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

class HubCase : public ::testing::TestWithParam<const char*> {
 protected:
  testing::TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Types, HubCase, ::testing::Values("gpt2", "opt", "llama", "mistral"));

TEST_P(HubCase, ImportedGivesTheLogitsOfTransformers) {
  const fs::path out = folder_.path() / "imported";
  import_hub_folder({.from = case_folder(GetParam()), .out = out, .context = 0, .precision = DType::f32});
  const auto device = Device::cpu();
  const LoadedModel loaded = load_model(*device, out, {});
  const SafetensorsFile expected(case_folder(GetParam()) / "expected.safetensors");
  const std::vector<std::int64_t>& shape = expected.at("logits").shape;
  const OwnedTensor tokens = device->memory().tensor(Purpose::data, DType::i32, {shape[0], shape[1]});
  const OwnedTensor want = device->memory().tensor(Purpose::data, DType::f32, {shape[0], shape[1], shape[2]});
  expected.load("tokens", tokens);
  expected.load("logits", want);
  EXPECT_LE(largest_difference(logits_of(*device, *loaded.model, tokens), testing::values_of(want)), 1e-4);
  EXPECT_TRUE(loaded.tokenizer == nullptr);
}

TEST_P(HubCase, ExportedHasTheSameTensors) {
  const fs::path ours = folder_.path() / "ours", back = folder_.path() / "back";
  const HubImported imported =
      import_hub_folder({.from = case_folder(GetParam()), .out = ours, .context = 0, .precision = {}});
  const HubExported exported = export_hub_folder({.from = ours, .out = back, .shard_bytes = 8000});
  EXPECT_EQ(exported.type, GetParam());
  EXPECT_GT(exported.files, 1u);
  EXPECT_EQ(imported.precision, std::string(GetParam()) == "mistral" ? DType::bf16 : DType::f32);
  EXPECT_EQ(exported.dtype, imported.precision);
  const HubSource theirs(case_folder(GetParam())), returned(back);
  EXPECT_EQ(returned.weights().model().model, theirs.weights().model().model);
  for (const HubArray& array : theirs.weights().arrays()) {
    const auto device = Device::cpu();
    const Shape shape = array.columns == 0 ? Shape{array.rows} : Shape{array.rows, array.columns};
    const OwnedTensor a = device->memory().tensor(Purpose::data, DType::f32, shape);
    const OwnedTensor b = device->memory().tensor(Purpose::data, DType::f32, shape);
    theirs.load(CheckpointSink::File::model, array.name, a);
    returned.load(CheckpointSink::File::model, array.name, b);
    EXPECT_EQ(testing::values_of(a), testing::values_of(b)) << array.name;
  }
  // What belongs to the model beside its weights comes back as it was.
  EXPECT_EQ(file_bytes(back / "generation_config.json"),
            file_bytes(case_folder(GetParam()) / "generation_config.json"));
  EXPECT_THAT(file_bytes(back / "config.json"), HasSubstr("\"eos_token_id\": 2"));
}

TEST_P(HubCase, HasTheArraysOfTheModel) {
  class Names final : public CheckpointSink {
   public:
    void put(File file, const std::string& name, const Tensor& tensor) override {
      if (file == File::model) shapes.emplace(name, to_string(tensor.shape));
    }
    std::map<std::string, std::string> shapes;
  };
  const HubSource source(case_folder(GetParam()));
  const auto device = Device::plan();
  Names ours;
  Transformer(*device, source.config(), Mode::inference, false).save(ours);
  std::map<std::string, std::string> theirs;
  for (const HubArray& array : source.weights().arrays())
    theirs.emplace(array.name, to_string(array.columns == 0 ? Shape{array.rows} : Shape{array.rows, array.columns}));
  EXPECT_EQ(theirs, ours.shapes);
}

TEST(HubImport, AShorterContextCutsThePositionsThatWereLearnt) {
  const testing::TemporaryFolder folder;
  const fs::path whole = folder.path() / "whole", cut = folder.path() / "cut";
  for (const char* name : {"gpt2", "opt"}) {
    for (const std::int64_t context : {0, 5})
      import_hub_folder({.from = case_folder(name), .out = context ? cut : whole, .context = context, .precision = {}});
    const auto device = Device::cpu();
    const OwnedTensor tokens = some_tokens(*device, 40, 5);
    EXPECT_EQ(logits_of(*device, *load_model(*device, cut, {}).model, tokens),
              logits_of(*device, *load_model(*device, whole, {}).model, tokens));
    fs::remove_all(whole);
    fs::remove_all(cut);
  }
}

TEST(HubImport, KeepsATokenizerAndItsFiles) {
  const testing::TemporaryFolder folder;
  const fs::path from = folder.path() / "theirs";
  fs::copy(case_folder("llama"), from);
  std::ofstream(from / "tokenizer_config.json") << "{\"of\": \"theirs\"}";
  std::ofstream(from / "tokenizer.model") << "no model";
  const HubImported imported =
      import_hub_folder({.from = from, .out = folder.path() / "ours", .context = 0, .precision = {}});
  EXPECT_EQ(imported.tokenizer, "");
  ASSERT_EQ(imported.notes.size(), 1u);
  EXPECT_THAT(imported.notes[0], HasSubstr("no tokenizer was imported, so that the model reads and writes ids only: "));
  const HubExported exported = export_hub_folder({.from = folder.path() / "ours", .out = folder.path() / "back"});
  EXPECT_TRUE(exported.notes.empty());
  EXPECT_EQ(file_bytes(folder.path() / "back" / "tokenizer.model"), "no model");
  EXPECT_EQ(file_bytes(folder.path() / "back" / "tokenizer_config.json"), "{\"of\": \"theirs\"}");
}

TEST(HubImport, LeavesNothingWhereItFails) {
  const testing::TemporaryFolder folder;
  const fs::path from = folder.path() / "theirs", out = folder.path() / "out";
  const auto import = [&] { import_hub_folder({.from = from, .out = out, .context = 0, .precision = {}}); };
  EXPECT_THAT(refusal(import), HasSubstr("theirs: no Hugging Face folder: there is no config.json in it"));
  fs::copy(case_folder("gpt2"), from);
  fs::resize_file(from / "model.safetensors", 4000);
  EXPECT_THAT(refusal(import), HasSubstr("model.safetensors: "));
  fs::resize_file(from / "config.json", 100);
  EXPECT_THAT(refusal(import), HasSubstr("config.json: not valid JSON"));
  fs::create_directories(out);
  EXPECT_THAT(refusal(import), HasSubstr("out: exists already; choose another --out"));
  fs::remove(out);
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder.path())) left.insert(entry.path().filename());
  EXPECT_EQ(left, std::set<std::string>{"theirs"});
}

// Runs on the byte tokenizer from a folder of theirs, made by exporting one of ours with its 257 entries.
class HubTraining : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    const std::string arch = std::get<0>(GetParam());
    train_tiny(tiny_run_config(folder_.path(), {"model.arch=" + arch, "weights.method=dense", "train.steps=2",
                                                arch == "llama" ? "model.kv_heads=1" : "model.kv_heads=2"}),
               folder_.path() / "first");
    export_hub_folder({.from = folder_.path() / "first", .out = folder_.path() / "theirs"});
  }
  // The shape is that of the folder.
  Config config(const std::vector<std::string>& keys) {
    const std::string toml =
        "[model]\ninit = \"theirs\"\n[data]\ntrain = \"text.txt\"\ntokenizer = \"bytes\"\n"
        "[train]\nsteps = 8\nbatch_tokens = 256\nlr = 1e-2\n"
        "[weights]\nblock = \"8x8\"\n[adapters]\nrank = 4\nstart = 0.3\nrewarm = 1.0\n"
        "[run]\ndeterministic = true\ndevice = \"cpu\"\n";
    std::vector<std::string> all = {std::string("weights.method=") + std::get<1>(GetParam())};
    all.insert(all.end(), keys.begin(), keys.end());
    return parse_config(toml, "tiny.toml", folder_.path(), all);
  }
  testing::TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(All, HubTraining,
                         ::testing::Combine(::testing::Values("gpt2", "opt", "llama"),
                                            ::testing::Values("slope", "block")));

TEST_P(HubTraining, GoesOnFromAFolderAndIsExportedAsADenseModel) {
  const fs::path run = folder_.path() / "run", merged = folder_.path() / "merged";
  train_tiny(config({}), run);
  EXPECT_TRUE(export_hub_folder({.from = run, .out = merged}).notes.empty());
  const auto device = Device::cpu();
  const OwnedTensor tokens = some_tokens(*device, 257, 32);
  Transformer dense = hub_model(*device, merged);
  const std::vector<double> trained = logits_of(*device, *load_model(*device, run, {}).model, tokens);
  EXPECT_LE(largest_difference(logits_of(*device, dense, tokens), trained), 1e-4);
  Transformer start = hub_model(*device, folder_.path() / "theirs");
  EXPECT_GT(largest_difference(logits_of(*device, start, tokens), trained), 1e-2) << "or the test shows nothing";
}

TEST_P(HubTraining, AdaptersOfPeftAreThoseThatMergingAdds) {
  for (const char* init : {"normal", "scaled"}) {
    const fs::path run = folder_.path() / init, merged = folder_.path() / "merged", beside = folder_.path() / "beside";
    train_tiny(config({std::string("adapters.init=") + init}), run);
    export_hub_folder({.from = run, .out = merged});
    export_hub_folder({.from = run, .out = beside, .adapters = HubAdapters::peft});
    const HubWeights with(merged, read_hub_config(merged)), without(beside, read_hub_config(beside));
    const SafetensorsFile adapter(beside / "adapter" / "adapter_model.safetensors");
    const auto peft = nlohmann::json::parse(file_bytes(beside / "adapter" / "adapter_config.json"));
    const double factor = peft.at("lora_alpha").get<double>() / peft.at("r").get<double>();
    EXPECT_EQ(peft.at("fan_in_fan_out"), std::string(std::get<0>(GetParam())) == "gpt2");
    EXPECT_EQ(peft.at("base_model_name_or_path"), beside.string());
    const auto device = Device::cpu();
    std::size_t modules = 0;
    std::size_t zeros = 0, entries = 0;
    for (const HubArray& array : with.arrays()) {
      if (array.columns == 0 || array.name.starts_with("embedding.")) continue;
      const Shape shape{array.rows, array.columns};
      const OwnedTensor sum = device->memory().tensor(Purpose::data, DType::f32, shape);
      const OwnedTensor base = device->memory().tensor(Purpose::data, DType::f32, shape);
      with.load(array, sum);
      without.load(array, base);
      std::int64_t row = 0;
      for (const HubPart& part : array.parts) {
        const std::string module = part.name.substr(0, part.name.size() - std::string(".weight").size());
        const std::int64_t first = row;
        row += part.rows;
        if (adapter.find("base_model.model." + module + ".lora_A.weight") == nullptr) continue;
        ++modules;
        EXPECT_THAT(peft.at("target_modules").get<std::vector<std::string>>(), ::testing::Contains(module));
        const OwnedTensor a = device->memory().tensor(Purpose::data, DType::f32, {4, array.columns});
        const OwnedTensor b = device->memory().tensor(Purpose::data, DType::f32, {part.rows, 4});
        adapter.load("base_model.model." + module + ".lora_A.weight", a);
        adapter.load("base_model.model." + module + ".lora_B.weight", b);
        for (std::int64_t n = 0; n < part.rows; ++n)
          for (std::int64_t k = 0; k < array.columns; ++k) {
            double added = 0.0;
            for (std::int64_t r = 0; r < 4; ++r)
              added += static_cast<double>(b.view().as<float>()[n * 4 + r]) *
                       static_cast<double>(a.view().as<float>()[r * array.columns + k]);
            const auto place = (first + n) * array.columns + k;
            const auto before = static_cast<double>(base.view().as<float>()[place]);
            ASSERT_NEAR(static_cast<double>(sum.view().as<float>()[place]), before + factor * added, 1e-6) << module;
            ++entries;
            zeros += before == 0.0 ? 1 : 0;
          }
      }
    }
    EXPECT_EQ(modules, peft.at("target_modules").size());
    EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(entries), 0.5, 0.05);
    for (const fs::path& out : {merged, beside}) fs::remove_all(out);
  }
}

TEST(HubTrainingOnce, SaysWhereAConfigurationAndItsFirstModelDisagree) {
  const testing::TemporaryFolder folder;
  const Config config = tiny_run_config(folder.path(), {"weights.method=dense", "train.steps=2"});
  train_tiny(config, folder.path() / "first");
  export_hub_folder({.from = folder.path() / "first", .out = folder.path() / "theirs"});
  const std::string init = "model.init=" + (folder.path() / "theirs").string();
  const auto start = [&](const std::vector<std::string>& keys) {
    std::vector<std::string> all = {init, "weights.method=dense", "train.steps=2"};
    all.insert(all.end(), keys.begin(), keys.end());
    return refusal([&] { train_tiny(tiny_run_config(folder.path(), all), folder.path() / "run"); });
  };
  EXPECT_THAT(start({"model.heads=4"}), HasSubstr("model.init: its model has model.heads = 2 in place of 4"));
  EXPECT_THAT(start({"model.layers=1", "model.norm_epsilon=1e-6"}),
              HasSubstr("model.layers = 2 in place of 1, model.norm_epsilon = 1e-05 in place of 1e-06"));
  EXPECT_THAT(start({"model.vocab=300"}), HasSubstr("model.vocab = 257 in place of 300"));
  EXPECT_THAT(start({"model.context=64"}), HasSubstr("64 tokens was asked for, but the model has 32 positions"));
  EXPECT_FALSE(fs::exists(folder.path() / "run"));
  EXPECT_EQ(start({"model.context=16"}), "(accepted)") << "fewer positions are a part of the table";
}

TEST(HubTrainingOnce, ARunKeepsWhatItsFirstModelBroughtAlong) {
  const testing::TemporaryFolder folder;
  train_tiny(tiny_run_config(folder.path(), {"weights.method=dense", "train.steps=2"}), folder.path() / "first");
  export_hub_folder({.from = folder.path() / "first", .out = folder.path() / "theirs"});
  std::ofstream(folder.path() / "theirs" / "generation_config.json") << "{\"of\": \"theirs\"}";
  std::ofstream(folder.path() / "theirs" / "special_tokens_map.json") << "{}";
  for (const char* init : {"theirs", "second"}) {
    const fs::path run = folder.path() / (init == std::string("theirs") ? "second" : "third");
    train_tiny(tiny_run_config(folder.path(), {"model.init=" + (folder.path() / init).string(), "train.steps=2"}), run);
    export_hub_folder({.from = run, .out = folder.path() / "out"});
    EXPECT_EQ(file_bytes(folder.path() / "out" / "generation_config.json"), "{\"of\": \"theirs\"}") << init;
    EXPECT_TRUE(fs::exists(folder.path() / "out" / "special_tokens_map.json")) << "the data has the same tokenizer";
    fs::remove_all(folder.path() / "out");
  }
}

TEST(HubExport, RefusesWhatItCannotDo) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run", out = folder.path() / "out";
  train_tiny(tiny_run_config(folder.path(), {"model.arch=opt", "model.norm_epsilon=1e-6", "train.steps=2"}), run);
  EXPECT_THAT(refusal([&] { export_hub_folder({.from = run, .out = out, .adapters = HubAdapters::peft}); }),
              HasSubstr("has no adapters"));
  EXPECT_THAT(refusal([&] { export_hub_folder({.from = run, .out = out}); }),
              HasSubstr("Hugging Face's OPT has 1e-5 and no key for another one"));
  EXPECT_THAT(refusal([&] { export_hub_folder({.from = folder.path() / "nothing", .out = out}); }),
              HasSubstr("no such run or checkpoint"));
  EXPECT_THAT(refusal([&] { export_hub_folder({.from = case_folder("gpt2"), .out = out}); }),
              HasSubstr("a Hugging Face folder; `filigree import` makes a checkpoint of it"));
  EXPECT_THAT(refusal([&] { export_hub_folder({.from = run, .out = run}); }), HasSubstr("exists already"));
  EXPECT_FALSE(fs::exists(out));
}

TEST(HubExport, ASentencePieceModelComesWithAConfigurationForIt) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run", out = folder.path() / "out";
  train_tiny(tiny_run_config(folder.path(), {"data.tokenizer=spm:300", "train.steps=2"}), run);
  const HubExported exported = export_hub_folder({.from = run, .out = out});
  EXPECT_TRUE(exported.notes.empty());
  EXPECT_EQ(file_bytes(out / "tokenizer.model"), file_bytes(run / "tokenizer.model"));
  EXPECT_THAT(file_bytes(out / "tokenizer_config.json"), HasSubstr("\"eos_token\": \"<|endoftext|>\""));
  EXPECT_THAT(file_bytes(out / "generation_config.json"), HasSubstr("\"eos_token_id\": 1"));
  EXPECT_THAT(file_bytes(out / "filigree.json"), HasSubstr("\"pattern\": \"2:4\""));
  // And is found again.
  const HubImported imported =
      import_hub_folder({.from = out, .out = folder.path() / "again", .context = 0, .precision = {}});
  EXPECT_EQ(imported.tokenizer, "spm:300");
  const auto device = Device::cpu();
  EXPECT_EQ(load_model(*device, folder.path() / "again", {}).tokenizer->identity(),
            load_model(*device, run, {}).tokenizer->identity());
}

TEST(HubExport, ATokenizerJsonComesBackAsItWas) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run", out = folder.path() / "out", again = folder.path() / "again";
  const std::string tokenizer = std::string(FILIGREE_SOURCE_DIR) + "/tests/golden/tokenizers/llama3.json";
  train_tiny(tiny_run_config(folder.path(), {"data.tokenizer=\"" + tokenizer + "\"", "train.steps=2"}), run);
  EXPECT_TRUE(export_hub_folder({.from = run, .out = out}).notes.empty());
  EXPECT_EQ(file_bytes(out / "tokenizer.json"), file_bytes(tokenizer));
  EXPECT_THAT(file_bytes(out / "tokenizer_config.json"), HasSubstr("\"eos_token\": \"<|end_of_text|>\""));
  EXPECT_FALSE(fs::exists(out / "tokenizer.model"));
  EXPECT_EQ(import_hub_folder({.from = out, .out = again, .context = 0, .precision = {}}).tokenizer, "bpe:502");
  const auto device = Device::cpu();
  EXPECT_EQ(load_model(*device, again, {}).tokenizer->identity(), load_tokenizer(tokenizer)->identity());
}

}  // namespace
}  // namespace filigree
