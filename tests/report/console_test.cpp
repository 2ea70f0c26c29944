// The console's text, the grouping of layers, and the JSON form of a model summary.
#include "report/console.h"

#include <gmock/gmock.h>

#include <limits>
#include <sstream>

#include "core/error.h"
#include "report/format.h"

namespace filigree {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ModelSummary small_summary() {
  ModelSummary summary;
  summary.dense_parameters = 124'439'808;
  summary.kept_parameters = 85'000'000;
  summary.layers = {{"blocks.0.attention.qkv", 2304, 768, "dense", "", 1.0, "onednn"}};
  for (int block = 1; block < 12; ++block)
    summary.layers.push_back(
        {"blocks." + std::to_string(block) + ".attention.qkv", 2304, 768, "slope", "2:4", 0.5, "nm-avx512"});
  summary.layers.push_back({"head", 50257, 768, "dense", "", 1.0, "onednn"});
  summary.memory = {{"weights", 300 << 20, 500 << 20}, {"metadata", 20 << 20, 0}, {"cache", 0, 0}};
  summary.sparse_layers_ratio = 0.625;
  return summary;
}

StartInfo small_start() {
  StartInfo info;
  info.device = "Some CPU, 2 threads";
  info.precision = "bf16";
  info.model = "gpt2, 12 layers, width 768";
  info.method = "slope 2:4";
  info.run = "runs/first";
  info.steps = 2000;
  info.batch_tokens = 8192;
  info.summary = small_summary();
  return info;
}

TEST(Console, StartBlockSaysWhatRunsWhere) {
  std::ostringstream out;
  Console(out, false).start(small_start());
  const std::string text = out.str();
  EXPECT_THAT(text, HasSubstr("filigree  runs/first\n"));
  EXPECT_THAT(text, HasSubstr("device     Some CPU, 2 threads, bf16\n"));
  EXPECT_THAT(text, HasSubstr("parameters 124.4M dense, 85.00M kept (68.3 %)\n"));
  EXPECT_THAT(text, HasSubstr("training   2,000 steps of 8,192 tokens\n"));
  EXPECT_THAT(text, HasSubstr("  memory    this run    dense  ratio\n"
                              "  weights    300 MiB  500 MiB  0.60x\n"
                              "  metadata  20.0 MiB      0 B      -\n"
                              "  total      320 MiB  500 MiB  0.64x\n"
                              "  On top comes the workspace that all layers share: its size is known after a run's "
                              "first step.\n"));
  EXPECT_THAT(text, HasSubstr("blocks.1-11.attention.qkv  x11   2304 x 768  slope 2:4      0.5  nm-avx512\n"));
  EXPECT_THAT(text, HasSubstr("head                            50257 x 768  dense            1  onednn\n"));
  EXPECT_THAT(text, Not(HasSubstr("cache")));  // a purpose that holds nothing
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("resumed")));
}

TEST(Console, StartBlockOfAResumedRunSaysSo) {
  std::ostringstream out;
  StartInfo info = small_start();
  info.first_step = 1200;
  Console(out, false).start(info);
  EXPECT_THAT(out.str(), HasSubstr("2,000 steps of 8,192 tokens, resumed after step 1,200\n"));
}

TEST(Console, ProgressLine) {
  std::ostringstream out;
  Console console(out, false);
  ProgressLine line;
  line.step = 120;
  line.steps = 2000;
  line.loss = 3.42131;
  line.lr = 9.8e-4;
  line.grad_norm = 0.8124;
  line.step_ms = 200;
  line.tokens_per_s = 41234;
  console.progress(line);
  EXPECT_EQ(out.str(), "step  120/2000    6.0 %  loss 3.4213  lr 9.80e-04  grad 0.812  41.2k tok/s  ETA 6 min 16 s\n");

  out.str("");
  line.step = 1990;
  line.step_ms = 1200;  // average 0.7 x 200 + 0.3 x 1200 = 500 ms
  console.progress(line);
  EXPECT_EQ(out.str(), "step 1990/2000   99.5 %  loss 3.4213  lr 9.80e-04  grad 0.812  41.2k tok/s  ETA 5.0 s\n");

  out.str("");
  line.step = 2000;
  console.progress(line);
  EXPECT_THAT(out.str(), Not(HasSubstr("ETA")));
}

TEST(Console, ColourOnlyAddsEscapes) {
  std::ostringstream plain, coloured;
  Console plain_console(plain, false), coloured_console(coloured, true);
  ProgressLine line;
  line.step = 1;
  line.steps = 10;
  line.loss = 9.5;
  for (Console* console : {&plain_console, &coloured_console}) {
    console->start(small_start());
    console->progress(line);
    console->evaluation({5, "perplexity", {{"loss", 3.50124}, {"perplexity", 33.156}}});
    console->note("checkpoint written");
    console->warn("step 7 skipped");
  }
  EXPECT_THAT(plain.str(), HasSubstr("eval  step 5  perplexity  loss 3.5012  perplexity 33.156\n"));
  EXPECT_THAT(plain.str(), HasSubstr("checkpoint written\nwarning: step 7 skipped\n"));
  std::string stripped;
  const std::string text = coloured.str();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b')
      i = text.find('m', i);
    else
      stripped += text[i];
  }
  EXPECT_NE(text, plain.str());
  EXPECT_EQ(stripped, plain.str());
}

TEST(ModelSummary, LayersAreGroupedWhenOnlyTheirNumberDiffers) {
  std::vector<LayerSummary> layers;
  for (const int block : {0, 1, 2, 5})
    layers.push_back({"blocks." + std::to_string(block) + ".mlp.up", 8, 4, "slope", "2:4", 0.5, "a"});
  layers.push_back({"blocks.3.mlp.up", 8, 4, "slope", "2:4", 0.5, "b"});
  layers.push_back({"blocks.0.mlp.down", 4, 8, "slope", "2:4", 0.5, "a"});
  layers.push_back({"head", 4, 8, "dense", "", 1.0, "a"});
  const auto groups = group_layers(layers);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[0].name, "blocks.0-2,5.mlp.up");
  EXPECT_EQ(groups[0].count, 4);
  EXPECT_EQ(groups[1].name, "blocks.3.mlp.up");
  EXPECT_EQ(groups[2].name, "blocks.0.mlp.down");
  EXPECT_EQ(groups[3].name, "head");
}

TEST(ModelSummary, JsonReadsBack) {
  const ModelSummary summary = small_summary();
  const std::string text = to_json(summary);
  const ModelSummary again = parse_model_summary(text);
  EXPECT_EQ(to_json(again), text);
  EXPECT_EQ(again.dense_parameters, summary.dense_parameters);
  EXPECT_EQ(again.bytes(), summary.bytes());
  EXPECT_EQ(again.dense_bytes(), summary.dense_bytes());
  EXPECT_EQ(again.memory[0].purpose, "weights");
  EXPECT_EQ(again.layers[1].pattern, "2:4");
  EXPECT_EQ(again.sparse_layers_ratio, 0.625);
}

TEST(ModelSummary, WorkspaceIsSaidWhereItIsKnown) {
  ModelSummary summary = small_summary();
  EXPECT_THAT(to_json(summary), Not(HasSubstr("workspace_bytes")));
  summary.workspace_bytes = 12 << 20;
  EXPECT_EQ(parse_model_summary(to_json(summary)).workspace_bytes, 12 << 20);
  EXPECT_EQ(workspace_note(summary), "On top comes the workspace that all layers share: 12.0 MiB so far.");
  EXPECT_EQ(summary.bytes(), small_summary().bytes());  // beside the table, not in it
}

TEST(ModelSummary, ADensePhaseBeforeIsSaid) {
  ModelSummary summary = small_summary();
  EXPECT_EQ(dense_phase_note(summary), "");
  EXPECT_THAT(to_json(summary), Not(HasSubstr("dense_phase")));
  summary.dense_steps = 1500;
  EXPECT_EQ(parse_model_summary(to_json(summary)).dense_steps, 1500);
  EXPECT_EQ(dense_phase_note(summary),
            "This is the sparse phase. Before it, in the first 1,500 steps, every layer is dense and the total is "
            "500 MiB: the run's peak.");
}

TEST(ModelSummary, WrongJsonIsAnError) {
  EXPECT_THROW(parse_model_summary("{"), Error);
  EXPECT_THROW(parse_model_summary("{\"layers\":[{\"rows\":1}]}"), Error);
  EXPECT_TRUE(parse_model_summary("{}").layers.empty());
}

TEST(Format, CountsBytesAndTimes) {
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(999.4), "999");
  EXPECT_EQ(format_count(41234), "41.2k");
  EXPECT_EQ(format_count(999'900), "1.000M");
  EXPECT_EQ(format_count(124'439'808), "124.4M");
  EXPECT_EQ(format_count(1.3e9), "1.300B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(2.5 * 1024 * 1024 * 1024), "2.50 GiB");
  EXPECT_EQ(format_duration(0.84), "0.8 s");
  EXPECT_EQ(format_duration(59.6), "1 min 00 s");
  EXPECT_EQ(format_duration(723), "12 min 03 s");
  EXPECT_EQ(format_duration(18'420), "5 h 07 min");
  EXPECT_EQ(format_duration(273'600), "3 d 04 h");
  EXPECT_EQ(format_number(3.42131), "3.421");
  EXPECT_EQ(format_number(0.00098, 2), "0.00098");
  EXPECT_EQ(format_number(1.23e-7), "1.23e-07");
  EXPECT_EQ(format_number(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(format_integer(1'234'567), "1,234,567");
  EXPECT_EQ(format_integer(-123), "-123");
  EXPECT_EQ(format_integer(-1'234), "-1,234");
}

}  // namespace
}  // namespace filigree
