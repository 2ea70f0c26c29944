// Writing a configuration, reading it back, and comparing two.
#include <gmock/gmock.h>

#include <cmath>

#include "config_support.h"
#include "io/config_keys.h"

namespace filigree {
namespace {

using ::testing::HasSubstr;
using testing::parse;
using testing::with;

TEST(ConfigWrite, ReadsBackEqual) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"model.preset=llama-3-8b", "train.batch_tokens=8192", "weights.method=slope"},
      {"train.lr=0.1", "train.eps=1e-300", "train.weight_decay=0.30000000000000004", "train.clip=1e22"},
      {"run.seed=9223372036854775807", "run.precision=bf16", "run.deterministic=true"},
      {"data.train=['/a \"quoted\" \\ \t', '/é*', '/b']", "data.tokenizer=bytes"},
      {"model.tied=false", "model.arch=llama", "model.preset=''", "model.layers=1", "model.width=8", "model.heads=2",
       "model.context=8"},
      {"weights.override=[{layers='blocks.0-1.*', method='slope', pattern='1:4'}, {layers='*', pattern='1:2'}]",
       "weights.dense_layers=[]", "weights.dense_layers=['head']"},
      {"weights.method=block", "weights.block=16x32", "weights.density=0.125", "weights.mask=diagonal-band",
       "weights.override=[{layers='*.up', method='block', block='auto', density=0.3}]"},
  };
  for (const auto& overrides : cases) {
    const Config config = with(overrides);
    const std::string text = write_config(config);
    const Config again = parse_config(text, "config.toml", "/elsewhere");
    EXPECT_EQ(again, config) << text;
    EXPECT_EQ(write_config(again), text);
  }
}

// A member that is missing in the table of keys would be lost without a word: each key changes the written text, and
// every line of the file belongs to a key.
TEST(ConfigWrite, HoldsEveryKeyOnce) {
  const std::string text = write_config(with({}));
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = text.find(" = ", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, config_keys().size());
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(find_config_key(key.name), &key) << "a name stands twice: " << key.name;
    EXPECT_FALSE(key.doc.empty()) << key.name;
    EXPECT_FALSE(expected_value(key).empty()) << key.name;
  }
}

TEST(ConfigWrite, HasTheOrderOfTheDocumentation) {
  const std::string text = write_config(with({"weights.override=[{layers='head', method='dense'}]"}));
  EXPECT_EQ(text.substr(0, 27), "[run]\nseed = 1\ndevice = \"au");
  EXPECT_THAT(text, HasSubstr("\n\n[train]\nsteps = 10\nbatch_tokens = 128\nmicro_batch = 0\nlr = 0.001\n"));
  EXPECT_THAT(text, HasSubstr("\nbetas = [0.9, 0.95]\neps = 1e-08\n"));
  EXPECT_THAT(text, HasSubstr("\noverride = [{ layers = \"head\", method = \"dense\" }]\n"));
  EXPECT_LT(text.find("[weights]"), text.find("[adapters]"));
  EXPECT_TRUE(text.ends_with("\n[log]\nevery = 10\ntensorboard = false\n"));
}

TEST(ConfigDifference, ListsChangedKeysInOrder) {
  const Config before = with({});
  EXPECT_TRUE(difference(before, before).empty());
  const auto changes = difference(
      before, with({"train.steps=20", "train.lr=0.5", "weights.pattern=1:4", "run.threads=2", "log.every=1",
                    "checkpoint.every=3", "checkpoint.keep=9", "eval.every=4", "eval.tokens=64", "run.seed=2"}));
  std::string text;
  for (const ConfigChange& change : changes)
    text += change.key + ": " + change.before + " -> " + change.after + (change.resumable ? "\n" : " !\n");
  EXPECT_EQ(text,
            "run.seed: 1 -> 2 !\nrun.threads: 0 -> 2\ntrain.steps: 10 -> 20\ntrain.lr: 0.001 -> 0.5 !\n"
            "weights.pattern: \"2:4\" -> \"1:4\" !\ncheckpoint.every: 0 -> 3\ncheckpoint.keep: 2 -> 9\n"
            "eval.every: 0 -> 4\neval.tokens: 0 -> 64\nlog.every: 10 -> 1\n");
}

TEST(ConfigWrite, ValuesAsToml) {
  EXPECT_EQ(toml_value(0.1), "0.1");
  EXPECT_EQ(toml_value(3.0), "3.0");
  EXPECT_EQ(toml_value(1e300), "1e+300");
  EXPECT_EQ(toml_value(-INFINITY), "-inf");
  EXPECT_EQ(toml_value(std::nan("")), "nan");
  EXPECT_EQ(toml_value(true), "true");
  EXPECT_EQ(toml_value(std::string("a\"\\\n\x7f")), R"("a\"\\\u000A\u007F")");
  EXPECT_EQ(toml_value(std::vector<std::string>{}), "[]");
  EXPECT_EQ(toml_value(std::vector<double>{1, 2.5}), "[1.0, 2.5]");
}

}  // namespace
}  // namespace filigree
