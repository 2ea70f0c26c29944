// Which changes a resumed run refuses or warns of, and when checkpoints are due.
#include "train/resumption.h"

#include "io/config_toml.h"
#include "support.h"

namespace filigree {
namespace {

Config config_with(const std::vector<std::string>& keys) {
  return parse_config(
      "[model]\nlayers = 2\nwidth = 32\nheads = 2\ncontext = 32\n[data]\ntrain = \"/d\"\n"
      "[train]\nsteps = 100\nbatch_tokens = 256\nlr = 1e-3\nwarmup = 10\n",
      "run.toml", "/base", keys);
}

TEST(ForbiddenChanges, OnlyWhatTheUserGaveIsNamed) {
  const Config saved = config_with({});
  EXPECT_EQ(forbidden_changes(saved, saved), "");
  EXPECT_EQ(forbidden_changes(saved, config_with({"log.every=3", "train.steps=200"})), "");
  EXPECT_EQ(forbidden_changes(saved, config_with({"model.width=64"})),
            "\n  model.width: the run was started with 32, now it is 64")
      << "model.ffn follows";
  EXPECT_EQ(forbidden_changes(saved, config_with({"model.heads=4"})),
            "\n  model.heads: the run was started with 2, now it is 4")
      << "model.kv_heads follows";
  EXPECT_EQ(forbidden_changes(saved, config_with({"model.ffn=96"})),
            "\n  model.ffn: the run was started with 128, now it is 96");
  EXPECT_EQ(forbidden_changes(config_with({"model.preset=tiny"}), config_with({"model.preset=tiny", "model.layers=3"})),
            "\n  model.layers: the run was started with 2, now it is 3");
}

TEST(ForbiddenChanges, PathsMayMoveWhereSomethingElseWasCompared) {
  const Config saved = config_with({"data.train=/old/d", "model.init=/old/runs/dense"});
  const Config moved = config_with({"data.train=/new/d", "model.init=/new/runs/dense"});
  EXPECT_EQ(forbidden_changes(saved, moved, {"data.train"}), "");
  EXPECT_EQ(forbidden_changes(saved, moved),
            "\n  data.train: the run was started with [\"/old/d\"], now it is [\"/new/d\"]");
  EXPECT_NE(forbidden_changes(saved, config_with({"data.train=/old/d", "model.init=/old/runs/other"})), "");
}

TEST(ChangedData, NamesTheSplitAndWhatWasExpected) {
  const std::map<std::string, DataFingerprint> saved = {{"train", {100, 0xab}}, {"val", {10, 1}}};
  EXPECT_EQ(changed_data(saved, saved), "");
  EXPECT_EQ(changed_data(saved, {{"train", {100, 0xac}}, {"val", {10, 1}}}),
            "\n  data.train: the run was started with 100 tokens of CRC-32C 000000ab, now there are 100 tokens of "
            "CRC-32C 000000ac");
  EXPECT_EQ(changed_data(saved, {{"train", {100, 0xab}}}),
            "\n  data.val: the run was started with 10 tokens of CRC-32C 00000001, now there are none");
}

TEST(ForbiddenChanges, AnotherPresetIsOneChange) {
  const std::string rest = "[data]\ntrain = \"/d\"\n[train]\nsteps = 100\nbatch_tokens = 256\n";
  const auto preset = [&](const std::string& name) {
    return parse_config("[model]\npreset = \"" + name + "\"\n" + rest, "run.toml", "/base", {});
  };
  EXPECT_EQ(forbidden_changes(preset("tiny"), preset("quickstart")),
            "\n  model.preset: the run was started with \"tiny\", now it is \"quickstart\"");
}

TEST(RateChange, NamesBothRates) {
  const Config saved = config_with({}), longer = config_with({"train.steps=200"});
  EXPECT_EQ(rate_change(saved, longer, 0), "");
  EXPECT_EQ(rate_change(saved, saved, 100), "");
  EXPECT_EQ(rate_change(saved, longer, 5), "") << "both warm up";
  EXPECT_EQ(
      rate_change(saved, longer, 100),
      "train.steps is 200 and was 100, which changes the schedule: the learning rate in step 100 was 3.05e-07 and "
      "would now be 0.000550, so it jumps");
  EXPECT_EQ(rate_change(config_with({"train.schedule=constant"}),
                        config_with({"train.schedule=constant", "train.steps=200"}), 100),
            "");
}

TEST(CheckpointInterval, FollowsTheEvaluations) {
  EXPECT_EQ(checkpoint_interval(config_with({}), true), 10);
  EXPECT_EQ(checkpoint_interval(config_with({"train.steps=12"}), true), 2);
  EXPECT_EQ(checkpoint_interval(config_with({"train.steps=1", "train.warmup=0"}), true), 1);
  EXPECT_EQ(checkpoint_interval(config_with({"eval.every=25"}), true), 25);
  EXPECT_EQ(checkpoint_interval(config_with({"eval.every=25"}), false), 10) << "nothing to evaluate on";
  EXPECT_EQ(checkpoint_interval(config_with({"eval.every=100"}), true), 10) << "the only evaluation is at the end";
  EXPECT_EQ(checkpoint_interval(config_with({"eval.every=25", "checkpoint.every=7"}), true), 7);
}

}  // namespace
}  // namespace filigree
