#include "train/trainer.h"

#include <nlohmann/json.hpp>

#include "eval/perplexity.h"
#include "io/config_toml.h"
#include "sparsity/layer_policy.h"
#include "tiny_run.h"
#include "train/model_loading.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using testing::file_bytes;
using testing::tiny_run_config;
using testing::train_tiny;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Trainer, LearnsAndLeavesACompleteFolder) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  std::string said;
  ASSERT_EQ(
      train_tiny(tiny_run_config(folder.path(), {"train.steps=60", "run.deterministic=false"}), run, false, &said),
      TrainOutcome::finished);
  const auto metrics = read_step_metrics(run / "metrics.jsonl");
  ASSERT_EQ(metrics.size(), 60u);
  EXPECT_NEAR(metrics.front().loss, 5.55, 0.1);  // ln 257
  EXPECT_LT(metrics.back().loss, 3.0);
  EXPECT_EQ(metrics.back().tokens, 60 * 256);
  const auto evaluations = read_eval_metrics(run / "eval.jsonl");
  ASSERT_EQ(evaluations.size(), 15u);
  EXPECT_LT(*find_value(evaluations.back().values, "bits_per_byte"), 4.5);
  // One byte a token, and one end-of-text: bits per byte are nearly nats over ln 2.
  EXPECT_NEAR(*find_value(evaluations.back().values, "bits_per_byte"),
              *find_value(evaluations.back().values, "loss") / 0.6931, 0.05);
  for (const char* file :
       {"config.toml", "metrics.jsonl", "eval.jsonl", "environment.json", "plans.json", "inspect.json", "samples.jsonl",
        "report.html", "tokenizer.model", "data/data.json", "checkpoints/step-00000060/model.safetensors"})
    EXPECT_TRUE(fs::exists(run / file)) << file;
  EXPECT_NE(said.find("slope 2:4"), std::string::npos) << said;
}

TEST(Trainer, TheSummaryKnowsTheWorkspaceAfterTheFirstStep) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  std::ostringstream out;
  Console console(out, false);
  Trainer trainer(tiny_run_config(folder.path(), {"train.steps=3", "eval.every=0"}), {.run = run}, console);
  trainer.run();
  EXPECT_NE(out.str().find("its size is known after a run's first step"), std::string::npos) << out.str();
  const ModelSummary summary = parse_model_summary(file_bytes(run / "inspect.json"));
  EXPECT_GT(summary.workspace_bytes, 0);
  EXPECT_LE(summary.workspace_bytes, trainer.device().memory().bytes(Purpose::workspace));  // samples came later
  EXPECT_NE(file_bytes(run / "report.html").find(" so far."), std::string::npos);
}

TEST(Trainer, KeepsTheNewestCheckpoints) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  train_tiny(tiny_run_config(folder.path(), {"checkpoint.every=2", "checkpoint.keep=2"}), run);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"step-00000006", "step-00000008"}));
}

TEST(Trainer, RefusesAnExistingFolderAndLeavesItAlone) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  fs::create_directories(run);
  std::ofstream(run / "precious") << "mine";
  const Config config = tiny_run_config(folder.path());
  EXPECT_NE(refusal([&] { train_tiny(config, run); }).find("neither a run"), std::string::npos);
  EXPECT_NE(refusal([&] { train_tiny(config, run, true); }).find("neither a run"), std::string::npos);
  EXPECT_EQ(file_bytes(run / "precious"), "mine");
}

TEST(Trainer, AMistakeFoundDuringSetUpLeavesNothing) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  std::ofstream(folder.path() / "short.txt") << "too short";
  std::ofstream(folder.path() / "empty.txt").flush();
  for (const auto& keys :
       std::vector<std::vector<std::string>>{{"data.train=" + (folder.path() / "missing.txt").string()},
                                             {"data.train=" + (folder.path() / "short.txt").string()},
                                             {"data.train=" + (folder.path() / "empty.txt").string()},
                                             {"model.vocab=100"},
                                             {"model.init=" + (folder.path() / "nowhere").string()}}) {
    const std::string text = refusal([&] { train_tiny(tiny_run_config(folder.path(), keys), run); });
    EXPECT_FALSE(text.empty()) << keys[0];
    EXPECT_FALSE(fs::exists(run)) << keys[0] << ": " << text;
  }
}

TEST(Trainer, DivergenceStopsAndKeepsTheLastCheckpoint) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Config config = tiny_run_config(folder.path(), {"train.lr=1e30", "train.warmup=0", "train.clip=0",
                                                        "train.schedule=constant", "checkpoint.every=1"});
  EXPECT_THROW(train_tiny(config, run), Error);
  ASSERT_TRUE(newest_checkpoint(run).has_value());
  EXPECT_NO_THROW(CheckpointReader{*newest_checkpoint(run)});
}

TEST(Trainer, SkipsNonFiniteStepsUntilTheyAreTooMany) {
  const testing::TemporaryFolder folder;
  const Config config =
      tiny_run_config(folder.path(), {"train.lr=1e30", "train.warmup=0", "train.clip=0", "train.schedule=constant",
                                      "train.on_nonfinite=skip", "train.steps=40", "eval.every=0"});
  std::ostringstream out;
  Console console(out, false);
  Trainer trainer(config, {.run = folder.path() / "run"}, console);
  EXPECT_THROW(trainer.run(), Error);
  EXPECT_NE(out.str().find("skipped"), std::string::npos);
}

TEST(Trainer, AResumedRunGoesOnCountingSkippedSteps) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Config config =
      tiny_run_config(folder.path(), {"train.lr=1e30", "train.warmup=0", "train.clip=0", "train.schedule=constant",
                                      "train.on_nonfinite=skip", "train.steps=40", "eval.every=0", "checkpoint.every=1",
                                      "checkpoint.keep=0"});
  EXPECT_THROW(train_tiny(config, run), Error);
  const std::size_t steps = read_step_metrics(run / "metrics.jsonl").size();
  ASSERT_LT(steps, 20u);
  for (std::size_t step = 7; step <= steps; ++step)
    fs::remove_all(checkpoint_path(run, static_cast<std::int64_t>(step)));
  EXPECT_THROW(train_tiny(config, run, true), Error);
  EXPECT_EQ(read_step_metrics(run / "metrics.jsonl").size(), steps);
}

// The loss of a run's first step, computed with `model`.
double first_loss_of(Device& device, Transformer& model, const Config& config, const fs::path& run) {
  const TrainingData data = find_training_data(config.data, {.run_folder = run, .progress = nullptr, .stop = {}});
  const DatasetView view(data.train, 257);
  const std::int64_t context = model.model().context, sequences = config.train.batch_tokens / context;
  const Loader loader(view, context, SampleOrder::shuffled, config.run.seed);
  const Shape shape{sequences, context};
  const OwnedTensor tokens = device.memory().tensor(Purpose::data, DType::i32, shape);
  const OwnedTensor targets = device.memory().tensor(Purpose::data, DType::i32, shape);
  const std::int64_t count =
      loader.batch(0, sequences, tokens.view().as<std::int32_t>(), targets.view().as<std::int32_t>());
  Activations activations(device, model.model(), DType::f32, sequences, context, Recompute::inference);
  return model.loss(device, activations, tokens, targets) / static_cast<double>(count);
}

// Zeroes the two smallest of every four neighbours in a row of the layers that `config` makes sparse.
void prune_by_magnitude(Device& device, Transformer& model, const Config& config) {
  for (Linear* linear : model.linears()) {
    const LinearSpec& spec = linear->weight().spec();
    if (spec.name == "head" ||
        layer_spec(config, spec.name, spec.inputs, spec.outputs, Mode::inference, false).method == "dense")
      continue;
    const OwnedTensor dense = device.memory().tensor(Purpose::workspace, DType::f32, {spec.outputs, spec.inputs});
    linear->weight().expand(device, dense, LinearWeight::Content::values);
    auto* group = dense.view().as<float>();
    for (std::int64_t i = 0; i < dense.view().count(); i += 4, group += 4)
      for (int zeroed = 0; zeroed < 2; ++zeroed) {
        float* least = nullptr;
        for (float* value = group; value < group + 4; ++value)
          if (*value != 0.0f && (!least || std::abs(*value) < std::abs(*least))) least = value;
        *least = 0.0f;
      }
    linear->weight().initialize(device, dense, true);
  }
}

TEST(Trainer, StartsFromADenseModelOfAnotherRun) {
  const testing::TemporaryFolder folder;
  train_tiny(tiny_run_config(folder.path(), {"weights.method=dense", "train.steps=40"}), folder.path() / "dense");
  const std::string init = "model.init=" + (folder.path() / "dense").string();
  const auto device = Device::cpu();
  LoadedModel dense = load_model(*device, folder.path() / "dense", {});
  double unpruned = 0.0;
  for (const bool pruned : {false, true}) {
    const fs::path run = folder.path() / (pruned ? "pruned" : "on");
    const Config config =
        tiny_run_config(folder.path(), {init, pruned ? "weights.mask=magnitude" : "weights.method=dense"});
    train_tiny(config, run);
    if (pruned) prune_by_magnitude(*device, *dense.model, config);
    const double expected = first_loss_of(*device, *dense.model, config, run);
    EXPECT_NEAR(read_step_metrics(run / "metrics.jsonl").front().loss, expected, 1e-4) << "fp32, on another kernel";
    EXPECT_GT(std::abs(expected - unpruned), 1e-3) << "or the test sees no pruning";
    unpruned = expected;
  }
}

TEST(Trainer, LoadedModelsGiveTheEvaluatedLoss) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Config config = tiny_run_config(folder.path(), {"adapters.rank=4", "adapters.start=0.5", "eval.tokens=0"});
  train_tiny(config, run);
  const auto device = Device::cpu();
  const LoadedModel loaded = load_model(*device, run, {});
  EXPECT_EQ(loaded.step, 8);
  EXPECT_TRUE(loaded.model->has_adapters());
  const TrainingData data = find_training_data(config.data, {.run_folder = run, .progress = nullptr, .stop = {}});
  const DatasetView view(data.val, 257);
  Activations activations(*device, loaded.config.model, DType::f32, 4, 32, Recompute::inference);
  const Perplexity result = perplexity(*device, *loaded.model, activations, view, {.batch = 4});
  EXPECT_NEAR(result.loss, *find_value(read_eval_metrics(run / "eval.jsonl").back().values, "loss"), 1e-5);
}

// Phases are fractions of train.steps, which a resume may change: what has begun stays begun.
TEST(Trainer, MoreStepsDoNotUndoPhasesThatHaveBegun) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const std::vector<std::string> keys = {"weights.start=0.25", "adapters.rank=4", "adapters.start=0.75",
                                         "checkpoint.every=1", "train.schedule=constant"};
  train_tiny(tiny_run_config(folder.path(), keys), run);
  auto longer = keys;
  longer.push_back("train.steps=20");
  std::string said;
  ASSERT_EQ(train_tiny(tiny_run_config(folder.path(), longer), run, true, &said), TrainOutcome::finished);
  EXPECT_EQ(said.find("inserted"), std::string::npos) << said;
  const CheckpointState state = CheckpointReader(*newest_checkpoint(run)).state();
  EXPECT_FALSE(state.dense_phase);
  EXPECT_EQ(state.sparse_start, 2);
  EXPECT_EQ(state.adapter_start, 6);
  const auto device = Device::cpu();
  EXPECT_NO_THROW(load_model(*device, run, {}));
}

TEST(Trainer, APhaseThatFewerStepsPutIntoThePastBeginsAtOnce) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const std::vector<std::string> keys = {"weights.start=0.5", "checkpoint.every=1", "checkpoint.keep=0",
                                         "train.schedule=constant", "train.steps=20"};
  train_tiny(tiny_run_config(folder.path(), keys), run);
  for (int step = 9; step <= 20; ++step) fs::remove_all(checkpoint_path(run, step));  // stopped after 8, still dense
  auto shorter = keys;
  shorter.back() = "train.steps=12";
  ASSERT_EQ(train_tiny(tiny_run_config(folder.path(), shorter), run, true), TrainOutcome::finished);
  EXPECT_EQ(CheckpointReader(checkpoint_path(run, 12)).state().sparse_start, 8);
}

// Of 10 steps the first is dense, of 4 none: the checkpoint is.
TEST(Trainer, FewerStepsThatLeaveNoDensePhaseGoOnFromADenseCheckpoint) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const std::vector<std::string> keys = {"weights.start=0.1", "checkpoint.every=1", "checkpoint.keep=0",
                                         "train.schedule=constant", "train.steps=10"};
  train_tiny(tiny_run_config(folder.path(), keys), run);
  for (int step = 2; step <= 10; ++step) fs::remove_all(checkpoint_path(run, step));
  ASSERT_TRUE(CheckpointReader(checkpoint_path(run, 1)).state().dense_phase);
  auto shorter = keys;
  shorter.back() = "train.steps=4";
  ASSERT_EQ(train_tiny(tiny_run_config(folder.path(), shorter), run, true), TrainOutcome::finished);
  const CheckpointState state = CheckpointReader(checkpoint_path(run, 4)).state();
  EXPECT_FALSE(state.dense_phase);
  EXPECT_EQ(state.sparse_start, 1);
  // And the other way round: a sparse checkpoint.
  ASSERT_EQ(train_tiny(tiny_run_config(folder.path(), keys), run, true), TrainOutcome::finished);
  EXPECT_EQ(CheckpointReader(checkpoint_path(run, 10)).state().sparse_start, 1);
}

TEST(Trainer, AdaptersWaitForTheSparsePhase) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  train_tiny(tiny_run_config(folder.path(), {"weights.start=0.5", "adapters.rank=4", "adapters.start=0.1"}), run);
  const CheckpointState state = CheckpointReader(*newest_checkpoint(run)).state();
  EXPECT_TRUE(state.adapters);
  EXPECT_EQ(state.adapter_start, 4);
}

TEST(Trainer, ResumeTakesKernelChoicesFromTheCheckpoint) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  train_tiny(tiny_run_config(folder.path(), {"checkpoint.every=4", "checkpoint.keep=0"}), run);
  fs::remove_all(checkpoint_path(run, 8));
  const fs::path state = checkpoint_path(run, 4) / "state.json";
  std::string text = file_bytes(state);
  for (std::size_t at = text.find("\"sparse\""); at != std::string::npos; at = text.find("\"sparse\"", at))
    text.replace(at, 8, "\"dense-after-unpack\"");
  std::ofstream(state) << text;
  train_tiny(tiny_run_config(folder.path(), {"checkpoint.every=4", "checkpoint.keep=0"}), run, true);
  EXPECT_NE(file_bytes(run / "inspect.json").find("forward dense-after-unpack"), std::string::npos);
}

// As on another device, which has other products: what is chosen anew is written, what was timed before stays.
TEST(Trainer, AResumedRunRecordsItsNewChoices) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Config config = tiny_run_config(folder.path(), {"checkpoint.every=4", "checkpoint.keep=0"});
  train_tiny(config, run);
  fs::remove_all(checkpoint_path(run, 8));
  auto plans = nlohmann::ordered_json::parse(file_bytes(run / "plans.json"));
  ASSERT_GE(plans.size(), 3u);
  const std::string lost = plans.begin().key(), kept = std::next(plans.begin()).key();
  const std::string other = std::next(plans.begin(), 2).key();
  plans.erase(lost);
  plans[kept]["sparse_ms"] = 1.25;
  plans[other] = {{"backend", "another one"}, {"sparse_ms", 1.5}};
  std::ofstream(run / "plans.json") << plans.dump();
  const fs::path state = checkpoint_path(run, 4) / "state.json";
  auto json = nlohmann::ordered_json::parse(file_bytes(state));
  ASSERT_EQ(json["backends"].erase(lost), 1u);
  std::ofstream(state) << json.dump();
  train_tiny(config, run, true);
  plans = nlohmann::ordered_json::parse(file_bytes(run / "plans.json"));
  EXPECT_TRUE(plans.contains(lost));
  EXPECT_EQ(plans[kept]["sparse_ms"], 1.25);
  EXPECT_EQ(plans[other]["sparse_ms"], 0.0) << "the time of another choice";
  for (const char* damaged : {"{\"", "[]", "{\"x\": 1}"}) {
    fs::remove_all(checkpoint_path(run, 8));
    std::ofstream(run / "plans.json") << damaged;
    train_tiny(config, run, true);
    EXPECT_TRUE(nlohmann::ordered_json::parse(file_bytes(run / "plans.json")).contains(lost)) << damaged;
  }
}

TEST(Trainer, RequireSparseRefusesBeforeAnythingIsKept) {
  if (std::string(FILIGREE_TEST_DEVICE) == "cuda") GTEST_SKIP() << "a GPU has no sparse product in fp32";
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  train_tiny(tiny_run_config(folder.path(), {"run.require_sparse=true", "checkpoint.every=4", "checkpoint.keep=0"}),
             run);
  fs::remove_all(checkpoint_path(run, 8));
  const fs::path state = checkpoint_path(run, 4) / "state.json";
  std::string text = file_bytes(state);
  text.replace(text.find("\"sparse\""), 8, "\"dense-after-unpack\"");
  std::ofstream(state) << text;
  const std::string before = file_bytes(run / "metrics.jsonl");
  EXPECT_NE(refusal([&] {
              train_tiny(tiny_run_config(folder.path(),
                                         {"run.require_sparse=true", "checkpoint.every=4", "checkpoint.keep=0"}),
                         run, true);
            }).find("run.require_sparse: these products would run dense:\n  dw "),
            std::string::npos);
  EXPECT_EQ(file_bytes(run / "metrics.jsonl"), before);
}

TEST(Trainer, AnotherTokenizerUnderTheSameNameIsRefused) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Config config =
      tiny_run_config(folder.path(), {"data.tokenizer=spm:300", "checkpoint.every=4", "checkpoint.keep=0"});
  train_tiny(config, run);
  fs::remove_all(checkpoint_path(run, 8));
  fs::path state = checkpoint_path(run, 4) / "state.json";
  std::string text = file_bytes(state);
  const std::size_t at = text.find("\"tokenizer\": \"spm:300-");
  ASSERT_NE(at, std::string::npos);
  text[at + 23] = text[at + 23] == '0' ? '1' : '0';
  std::ofstream(state) << text;
  EXPECT_NE(refusal([&] { train_tiny(config, run, true); }).find("tokenizer"), std::string::npos);
}

TEST(Trainer, ADenseModelStartsFromASparseOneWithItsAdapters) {
  const testing::TemporaryFolder folder;
  train_tiny(
      tiny_run_config(folder.path(), {"train.steps=40", "adapters.rank=4", "adapters.start=0.5", "eval.every=40"}),
      folder.path() / "sparse");
  const std::string init = "model.init=" + (folder.path() / "sparse").string();
  train_tiny(tiny_run_config(folder.path(), {init, "weights.method=dense", "train.lr=1e-9", "eval.every=1"}),
             folder.path() / "dense");
  EXPECT_NEAR(*find_value(read_eval_metrics(folder.path() / "dense" / "eval.jsonl").front().values, "loss"),
              *find_value(read_eval_metrics(folder.path() / "sparse" / "eval.jsonl").back().values, "loss"), 1e-3);
  EXPECT_NE(
      refusal([&] { train_tiny(tiny_run_config(folder.path(), {init}), folder.path() / "again"); }).find("adapter"),
      std::string::npos);
  EXPECT_NE(refusal([&] {
              train_tiny(tiny_run_config(folder.path(), {init, "model.arch=opt", "weights.method=dense"}),
                         folder.path() / "opt");
            }).find("model.init"),
            std::string::npos);
}

}  // namespace
}  // namespace filigree
