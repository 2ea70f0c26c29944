// Reading TOML and --set: types, ranges, unknown keys, paths, presets. Each message is compared whole.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "config_support.h"
#include "io/atomic_file.h"
#include "io/config_keys.h"
#include "support.h"

namespace filigree {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kSmall;
using testing::parse;
using testing::refusal;
using testing::set_refusal;
using testing::with;

TEST(ConfigRead, EveryKeyReachesItsMember) {
  const Config c = parse(R"(
[run]
seed = 7
device = "cpu"
precision = "bf16"
deterministic = true
require_sparse = true
threads = 3
[model]
arch = "llama"
layers = 2
width = 32
heads = 4
kv_heads = 2
ffn = 96
vocab = 97
context = 16
norm_epsilon = 1e-6
rope_base = 5e5
tied = true
init = "/start"
[data]
train = ["/a", "/b"]
val = "/c"
tokenizer = "spm:512"
[train]
steps = 20
batch_tokens = 64
micro_batch = 2
lr = 1
schedule = "linear"
warmup = 3
min_lr = 0.25
weight_decay = 0.5
betas = [0.8, 0]
eps = 1e-7
clip = 0
recompute = "block"
on_nonfinite = "skip"
[weights]
method = "slope"
pattern = "1:4"
block = "32x64"
density = 0.25
mask = "magnitude"
column_mask = "fixed"
start = 0.5
dx_rescale = 2.0
init_scale = "none"
dense_layers = "head"
[[weights.override]]
layers = "blocks.1.*"
method = "dense"
[[weights.override]]
layers = "*.up"
pattern = "2:8"
block = "auto"
density = 1
[adapters]
rank = 4
start = 0.75
init = "scaled"
rewarm = 0.2
[checkpoint]
every = 5
keep = 0
[eval]
every = 6
tokens = 1000
[log]
every = 2
)");
  EXPECT_EQ(c.run, (RunConfig{7, "cpu", DType::bf16, true, true, 3}));
  EXPECT_EQ(c.model, (ModelConfig{"", "llama", 2, 32, 4, 2, 96, 97, 16, 1e-6, 5e5, true, "/start"}));
  EXPECT_EQ(c.data, (DataConfig{{"/a", "/b"}, {"/c"}, "spm:512"}));
  EXPECT_EQ(c.train, (TrainConfig{20, 64, 2, 1.0, "linear", 3, 0.25, 0.5, 0.8, 0.0, 1e-7, 0.0, "block", "skip"}));
  EXPECT_EQ(c.weights, (WeightsConfig{"slope",
                                      {1, 4},
                                      {32, 64},
                                      0.25,
                                      "magnitude",
                                      "fixed",
                                      0.5,
                                      2.0,
                                      "none",
                                      {"head"},
                                      {{"blocks.1.*", "dense", "", "", 0.0}, {"*.up", "", "2:8", "auto", 1.0}}}));
  EXPECT_EQ(c.adapters, (AdaptersConfig{4, 0.75, "scaled", 0.2}));
  EXPECT_EQ(c.checkpoint, (CheckpointConfig{5, 0}));
  EXPECT_EQ(c.eval, (EvalConfig{.every = 6, .tokens = 1000, .tasks = {}, .task_data = {}}));
  EXPECT_EQ(c.log, (LogConfig{2}));
}

TEST(ConfigRead, WithoutKeysTheDefaultsOfTheStructsHold) {
  Config expected;
  expected.model = parse(kSmall).model;
  expected.data.train = {"/d/*.bin"};
  expected.train.steps = 10;
  expected.train.batch_tokens = 128;
  EXPECT_EQ(parse(kSmall), expected);
}

TEST(ConfigRead, WrongTypesNameLineKeyValueAndExpectation) {
  const std::string small = kSmall;
  EXPECT_EQ(refusal(small + "\n[run]\nthreads = 'all'\n"),
            "run.toml:6: run.threads: found \"all\", expected an integer from 0 to 4096");
  const auto line4 = [&](const std::string& section, const std::string& line) {
    return refusal(small + "[" + section + "]\n" + line + "\n");
  };
  EXPECT_EQ(line4("run", "deterministic = 1"), "run.toml:5: run.deterministic: found 1, expected true or false");
  EXPECT_EQ(line4("run", "seed = 1.5"), "run.toml:5: run.seed: found 1.5, expected an integer of at least 0");
  EXPECT_EQ(line4("run", "device = true"),
            "run.toml:5: run.device: found true, expected one of \"auto\", \"cpu\", \"cuda\"");
  EXPECT_EQ(line4("run", "precision = 2024-01-01"),
            "run.toml:5: run.precision: found a date or time, expected one of \"fp32\", \"bf16\"");
  EXPECT_EQ(line4("weights", "start = '0.5'"),
            "run.toml:5: weights.start: found \"0.5\", expected a number from 0 to 1");
  EXPECT_EQ(line4("weights", "dense_layers = [1, 2]"),
            "run.toml:5: weights.dense_layers: found a list of 2, expected a layer name or a list of them, such as "
            "\"blocks.*.mlp.*\", \"blocks.0-3.*\" or \"head\"");
  EXPECT_EQ(line4("weights.pattern", "keep = 2"),
            "run.toml:4: weights.pattern: found a table, expected \"KEEP:OF\" with 1 <= KEEP < OF <= 32, e.g. \"2:4\"");
  EXPECT_EQ(line4("weights", "pattern = 2"),
            "run.toml:5: weights.pattern: found 2, expected \"KEEP:OF\" with 1 <= KEEP < OF <= 32, e.g. \"2:4\"");
  EXPECT_EQ(set_refusal("train.betas=0.9"),
            "--set: train.betas: found 0.9, expected two numbers from 0 to 1 (excluded)");
  EXPECT_EQ(set_refusal("train.betas=[0.9, 'b']"),
            "--set: train.betas: found a list of 2, expected two numbers from 0 to 1 (excluded)");
  EXPECT_EQ(set_refusal("model.init=[1]"), "--set: model.init: found a list of 1, expected a text in quotes");
}

TEST(ConfigRead, RangesAreChecked) {
  EXPECT_EQ(set_refusal("run.seed=-1"), "--set: run.seed: found -1, expected an integer of at least 0");
  EXPECT_EQ(set_refusal("run.seed=9223372036854775807"), "(accepted)");
  EXPECT_EQ(set_refusal("run.threads=4097"), "--set: run.threads: found 4097, expected an integer from 0 to 4096");
  EXPECT_EQ(set_refusal("train.steps=0"), "--set: train.steps: found 0, expected an integer of at least 1");
  EXPECT_EQ(set_refusal("train.steps=2000000000000"),
            "--set: train.steps: found 2000000000000, expected an integer of at least 1 and at most 1e+12");
  EXPECT_EQ(set_refusal("train.lr=0"), "--set: train.lr: found 0.0, expected a number above 0");
  EXPECT_EQ(set_refusal("train.lr=nan"), "--set: train.lr: found nan, expected a number above 0");
  EXPECT_EQ(set_refusal("train.lr=inf"),
            "--set: train.lr: found inf, expected a number above 0 and at most 1.7976931348623157e+308");
  EXPECT_EQ(set_refusal("train.min_lr=1.1"), "--set: train.min_lr: found 1.1, expected a number from 0 to 1");
  EXPECT_EQ(set_refusal("train.betas=[0.9, 1]"),
            "--set: train.betas: found [0.9, 1.0], expected two numbers from 0 to 1 (excluded)");
  EXPECT_EQ(set_refusal("train.betas=[0.9]"),
            "--set: train.betas: found [0.9], expected two numbers from 0 to 1 (excluded)");
  EXPECT_EQ(set_refusal("train.clip=-1.0"), "--set: train.clip: found -1.0, expected a number of at least 0");
  EXPECT_EQ(set_refusal("train.eps=0"), "--set: train.eps: found 0.0, expected a number above 0");
  EXPECT_EQ(set_refusal("adapters.start=-0.1"), "--set: adapters.start: found -0.1, expected a number from 0 to 1");
  EXPECT_EQ(set_refusal("log.every=-1"), "--set: log.every: found -1, expected an integer of at least 0");
  EXPECT_EQ(set_refusal("log.every=0"), "(accepted)");
  EXPECT_EQ(set_refusal("model.layers=5000"), "--set: model.layers: found 5000, expected an integer from 1 to 1024");
}

TEST(ConfigRead, ChoicesAndFormsAreChecked) {
  EXPECT_EQ(set_refusal("train.schedule=cosinus"),
            "--set: train.schedule: found \"cosinus\", expected one of \"cosine\", \"linear\", \"constant\"");
  EXPECT_THAT(
      set_refusal("model.preset=gpt2-124M"),
      HasSubstr("found \"gpt2-124M\", expected one of \"tiny\", \"quickstart\", \"nano-25m\", \"gpt2-124m\", "));
  for (const char* pattern : {"4:4", "0:4", "2:33", "2", "two:four"})
    EXPECT_EQ(set_refusal("weights.pattern=" + std::string(pattern)).substr(0, 30), "--set: weights.pattern: found ")
        << pattern;
  EXPECT_EQ(set_refusal("data.tokenizer=spm:0"),
            "--set: data.tokenizer: found \"spm:0\", expected \"bytes\", \"spm:VOCAB\" with VOCAB from 259 (the "
            "bytes and three more) to 1000000, or "
            "a tokenizer's file or folder");
  for (const char* wrong : {"spm:", "spm:2k", "spm:258", "spm:0300", "spm:1000001", "spm:99999999999", "spm:-5"})
    EXPECT_THAT(set_refusal("data.tokenizer=" + std::string(wrong)), HasSubstr("expected \"bytes\"")) << wrong;
  for (const char* right : {"spm:1000000", "spm:259", "spm:2048", "bytes", "\"\"", "some.model"})
    EXPECT_EQ(set_refusal("data.tokenizer=" + std::string(right)), "(accepted)") << right;
  EXPECT_EQ(set_refusal("data.train=['']"),
            "--set: data.train: found [\"\"], expected a path or glob in quotes, or a list of them");
  EXPECT_EQ(set_refusal("data.train="),
            "--set: data.train: found [\"\"], expected a path or glob in quotes, or a list of them");
  EXPECT_EQ(set_refusal("data.train=[]"), "(accepted)");  // of an imported model; training says that it is missing
  EXPECT_EQ(set_refusal("data.val=[]"), "(accepted)");
  EXPECT_EQ(set_refusal("weights.dense_layers=['blocks[0]']"),
            "--set: weights.dense_layers: found [\"blocks[0]\"], expected a layer name or a list of them, such as "
            "\"blocks.*.mlp.*\", \"blocks.0-3.*\" or \"head\"");
  EXPECT_EQ(set_refusal("weights.dense_layers=[]"), "(accepted)");
}

TEST(ConfigRead, OverridesOfLayersAreChecked) {
  const std::string small = std::string(kSmall) + "[[weights.override]]\n";
  EXPECT_EQ(
      refusal(small + "layers = 'head'\nmethods = 'dense'\n"),
      "run.toml:6: weights.override.methods: unknown key; an override has layers, method, pattern, block and density");
  EXPECT_EQ(refusal(small + "layers = 3\n"), "run.toml:5: weights.override.layers: found 3, expected a text in quotes");
  EXPECT_EQ(
      refusal(small + "method = 'dense'\n"),
      "run.toml:4: weights.override: found [{ layers = \"\", method = \"dense\" }], layers: a layer's name is empty; "
      "expected a name such as \"blocks.0-3.*\"");
  EXPECT_EQ(
      refusal(small + "layers = 'blocks.3-0.*'\nmethod = 'dense'\n"),
      "run.toml:4: weights.override: found [{ layers = \"blocks.3-0.*\", method = \"dense\" }], layers: the range "
      "3-0 is empty; expected a name such as \"blocks.0-3.*\"");
  EXPECT_EQ(refusal(small + "layers = 'head'\nmethod = 'slop'\n"),
            "run.toml:4: weights.override: found [{ layers = \"head\", method = \"slop\" }], method: expected one of "
            "\"dense\", \"slope\", \"block\"");
  EXPECT_EQ(
      refusal(small + "layers = 'head'\npattern = '4:2'\n"),
      "run.toml:4: weights.override: found [{ layers = \"head\", pattern = \"4:2\" }], pattern: expected \"KEEP:OF\" "
      "with 1 <= KEEP < OF <= 32, e.g. \"2:4\"");
  EXPECT_EQ(
      refusal(small + "layers = 'head'\n"),
      "run.toml:4: weights.override: found [{ layers = \"head\" }], expected method, pattern, block or density beside "
      "layers");
  EXPECT_EQ(refusal(small + "layers = 'head'\nblock = '16'\n"),
            "run.toml:4: weights.override: found [{ layers = \"head\", block = \"16\" }], block: expected "
            "\"OUTPUTSxINPUTS\", each from 4 to 1024, e.g. \"16x16\", or \"auto\"");
  EXPECT_EQ(
      refusal(small + "layers = 'head'\ndensity = 1.5\n"),
      "run.toml:4: weights.override: found [{ layers = \"head\", density = 1.5 }], density: expected a number above "
      "0 and at most 1");
  EXPECT_EQ(refusal(small + "layers = 'head'\ndensity = 0\n"),
            "run.toml:6: weights.override.density: found 0, expected a number above 0 and at most 1");
  const std::string expected =
      "expected tables [[weights.override]] with layers, and method, pattern, block or density";
  EXPECT_EQ(set_refusal("weights.override=dense"), "--set: weights.override: found \"dense\", " + expected);
  EXPECT_EQ(set_refusal("weights.override=[1]"), "--set: weights.override: found 1, " + expected);
  EXPECT_EQ(with({"weights.override=[{layers='head', method='dense'}]"}).weights.overrides,
            (std::vector<WeightsConfig::Override>{{"head", "dense", "", "", 0.0}}));
  EXPECT_EQ(with({"weights.override=[{layers='head', block='16x32', density=0.5}]"}).weights.overrides,
            (std::vector<WeightsConfig::Override>{{"head", "", "", "16x32", 0.5}}));
}

TEST(ConfigRead, UnknownKeysNameTheClosest) {
  EXPECT_EQ(set_refusal("train.stpes=5"), "--set: train.stpes: unknown key; the closest known key is train.steps");
  EXPECT_EQ(set_refusal("train.rank=5"), "--set: train.rank: unknown key; the closest known key is adapters.rank");
  EXPECT_EQ(set_refusal("train.learning_rate=5"),
            "--set: train.learning_rate: unknown key; the closest known key is train.lr");
  EXPECT_EQ(set_refusal("model.depth=5"), "--set: model.depth: unknown key; the closest known key is model.layers");
  EXPECT_EQ(set_refusal("train.warmup_steps=5"),
            "--set: train.warmup_steps: unknown key; the closest known key is train.warmup");
  EXPECT_EQ(set_refusal("eval.evry=5"), "--set: eval.evry: unknown key; the closest known key is eval.every");
  EXPECT_EQ(set_refusal("log.colour=5"), "--set: log.colour: unknown key; [log] has every, tensorboard");
  EXPECT_EQ(
      set_refusal("sparse.colour=5"),
      "--set: sparse.colour: unknown key; the sections are run, model, data, train, weights, adapters, gradients, "
      "distributed, checkpoint, eval, log");
  EXPECT_EQ(set_refusal("lr=5"), "--set: lr: unknown key; the closest known key is train.lr");
  EXPECT_EQ(set_refusal("train=5"), "--set: train: a section, not a key; expected a key in it, such as train.steps");
  const std::string small = kSmall;
  EXPECT_EQ(refusal("steps = 5\n" + small), "run.toml:1: steps: unknown key; the closest known key is train.steps");
  EXPECT_EQ(refusal("weights = 5\n" + small),
            "run.toml:1: weights: a section, not a key; expected a key in it, such as weights.method");
  EXPECT_EQ(refusal(small + "[adaptors]\nrank = 5\n"),
            "run.toml:5: adaptors.rank: unknown key; the closest known key is adapters.rank");
  EXPECT_EQ(refusal(small + "[logs]\n"),
            "run.toml:4: logs: unknown key; the sections are run, model, data, train, weights, adapters, gradients, "
            "distributed, checkpoint, eval, log");
  EXPECT_EQ(refusal(small + "[log]\n"), "(accepted)");
  EXPECT_EQ(refusal(small + "[eval.thing]\na = 1\n"),
            "run.toml:4: eval.thing: unknown key; [eval] has every, tokens, tasks, task_data, "
            "task_limit");
}

TEST(ConfigRead, PathsOfTasksMayHaveANameBeforeThem) {
  const Config config = parse_config(
      std::string(kSmall) + "[eval]\ntasks = [\"piqa\"]\n" + "task_data = [\"../eval\", \"piqa=x/p.jsonl\"]\n",
      "run.toml", "/runs/a");
  EXPECT_EQ(config.eval.task_data, (std::vector<std::string>{"/runs/eval", "piqa=/runs/a/x/p.jsonl"}));
}

TEST(ConfigRead, WhatThisBuildDoesNotHaveIsSaid) {
  const std::string none = "this build of filigree does not have ";
  for (const char* method : {"srste", "fst", "sste", "step"})
    EXPECT_EQ(set_refusal("weights.method=" + std::string(method)),
              "--set: weights.method: found \"" + std::string(method) + "\", " + none +
                  "this weight method; expected one of \"dense\", \"slope\", \"block\"");
}

TEST(ConfigRead, RequiredKeysAndSeveralMistakesComeTogether) {
  EXPECT_EQ(
      refusal("[train]\nsteps = 0\nlr = 'x'\n"),
      "run.toml:2: train.steps: found 0, expected an integer of at least 1\n"
      "run.toml:3: train.lr: found \"x\", expected a number above 0\n"
      "run.toml: data.train is missing: token shards or text to train on; globs; expected a path or glob in quotes, "
      "or a list of them\n"
      "run.toml: train.batch_tokens is missing: tokens of an optimizer step; expected an integer of at least 1");
  EXPECT_EQ(refusal("[data]\ntrain = '/d'\n[train]\nsteps = 1\nbatch_tokens = 8\n[model]\nlayers = 2\n"),
            "run.toml: the model has no shape; expected model.preset, or model.layers, model.width, model.heads and "
            "model.context, or model.init, a model to start from");
}

TEST(ConfigRead, AtMostTwentyProblemsAreShown) {
  std::string text = "[train]\n";
  for (int i = 0; i < 30; ++i) text += "wrong" + std::to_string(i) + " = 1\n";
  const std::string message = refusal(text);
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 19);
}

TEST(ConfigRead, BrokenTomlNamesTheLine) {
  EXPECT_THAT(refusal("\n[run\n"), HasSubstr("run.toml:2: not valid TOML: "));
  EXPECT_THAT(refusal("[run]\nseed = 1\nseed = 2\n"), HasSubstr("run.toml:3: not valid TOML: "));
  EXPECT_THAT(refusal("[run]\nseed = 99999999999999999999\n"), HasSubstr("run.toml:2: not valid TOML: "));
  EXPECT_THAT(refusal("a = \"\xff\"\n"), HasSubstr("run.toml:1: not valid TOML: "));
}

TEST(ConfigSet, LaterOnesWinAndWordsAreTexts) {
  const Config c =
      with({"train.lr=1e-4", "train.lr=2e-4", "weights.method=slope", "weights.pattern=1:2", "run.deterministic=true",
            "train.schedule=\"linear\"", "train.betas=[0.5,0.6]", "run.seed=0x10"});
  EXPECT_EQ(c.train.lr, 2e-4);
  EXPECT_EQ(c.weights.method, "slope");
  EXPECT_EQ(c.weights.pattern, (Pattern{1, 2}));
  EXPECT_TRUE(c.run.deterministic);
  EXPECT_EQ(c.train.schedule, "linear");
  EXPECT_EQ(c.train.beta2, 0.6);
  EXPECT_EQ(c.run.seed, 16u);
  EXPECT_EQ(set_refusal("train.lr"), "--set: found \"train.lr\", expected key=value");
  EXPECT_EQ(set_refusal("=5"), "--set: found \"=5\", expected key=value");
  EXPECT_EQ(set_refusal("data.train=[a, b]"),
            "--set: data.train: found [a, b], which is no TOML value; texts within need quotes");
  EXPECT_EQ(set_refusal("data.tokenizer=\"a"),
            "--set: data.tokenizer: found \"a, which is no TOML value; texts within need quotes");
  // One value, whatever the shell let through.
  EXPECT_EQ(set_refusal("train.steps=5\nother=6"),
            "--set: train.steps: found \"5\\u000Aother=6\", expected an integer of at least 1");
}

TEST(ConfigSet, FillsWhatTheFileLacks) {
  const Config c = parse("", {"model.preset=tiny", "data.train=/x", "train.steps=1", "train.batch_tokens=64"});
  EXPECT_EQ(c.model.width, 64);
}

TEST(ConfigPaths, AreRelativeToTheFileOrTheCurrentFolder) {
  const std::string text =
      "model = { preset = 'tiny', init = '../runs/first/' }\ntrain = { steps = 1, batch_tokens = 64 }\n"
      "data = { train = ['a*.bin', '/abs/b.bin', '../c.bin'], val = 'v/*.bin', tokenizer = 'spm.model' }\n";
  const Config file = parse(text);
  EXPECT_THAT(file.data.train, ElementsAre("/base/a*.bin", "/abs/b.bin", "/c.bin"));
  EXPECT_THAT(file.data.val, ElementsAre("/base/v/*.bin"));
  EXPECT_EQ(file.data.tokenizer, "/base/spm.model");
  EXPECT_EQ(file.model.init, "/runs/first");

  const std::string here = std::filesystem::current_path().string();
  const Config set =
      parse(text, {"data.val=v*.bin", "data.train=['x', '/y']", "data.tokenizer=2048", "model.init=a/../b"});
  EXPECT_THAT(set.data.val, ElementsAre(here + "/v*.bin"));
  EXPECT_THAT(set.data.train, ElementsAre(here + "/x", "/y"));
  EXPECT_EQ(set.data.tokenizer, here + "/2048");
  EXPECT_EQ(set.model.init, here + "/b");
  EXPECT_EQ(parse(text, {"data.tokenizer=bytes"}).data.tokenizer, "bytes");
  EXPECT_EQ(parse(text, {"data.tokenizer=''", "model.init="}).model.init, "");
}

TEST(ConfigPaths, OfARelativeFileAreAbsolute) {
  const testing::TemporaryFolder folder;
  write_file_atomically(folder.path() / "run.toml",
                        "model.preset = 'tiny'\ndata.train = 'a.bin'\ntrain = { steps = 1, batch_tokens = 64 }\n");
  const auto relative = std::filesystem::relative(folder.path() / "run.toml");
  const auto train = read_config(relative).data.train;
  EXPECT_THAT(train, ElementsAre((folder.path() / "a.bin").string()));
  EXPECT_THROW(read_config(folder.path() / "none.toml"), UserError);
}

TEST(ConfigPreset, KeysBesideItOverride) {
  EXPECT_EQ(with({"model.preset=gpt2-124m", "train.batch_tokens=1024"}).model.ffn, 3072);
  const Config wide = with({"model.width=128", "model.layers=3", "model.context=32"});
  EXPECT_EQ(wide.model.preset, "tiny");
  EXPECT_EQ(wide.model.width, 128);
  EXPECT_EQ(wide.model.ffn, 512);  // follows the width, not the preset's
  EXPECT_EQ(wide.model.kv_heads, 4);
  EXPECT_EQ(wide.model.context, 32);
  EXPECT_EQ(with({"model.preset=llama-3-8b", "model.context=128", "train.batch_tokens=128"}).model.ffn, 14336);
}

TEST(ConfigPreset, TiedFollowsTheArchitectureUnlessSet) {
  EXPECT_TRUE(with({}).model.tied);
  EXPECT_FALSE(with({"model.arch=llama"}).model.tied);
  EXPECT_TRUE(with({"model.arch=llama", "model.tied=true"}).model.tied);
  EXPECT_FALSE(with({"model.tied=false"}).model.tied);
  EXPECT_FALSE(with({"model.preset=mistral-7b", "train.batch_tokens=8192"}).model.tied);
}

TEST(ConfigKeys, EditDistanceCountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("steps", "steps"), 0u);
}

}  // namespace
}  // namespace filigree
