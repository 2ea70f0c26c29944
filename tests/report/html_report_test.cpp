// The report as text: figures, comparisons, partial runs, and that nothing a run wrote can become markup.
#include "report/html_report.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "fake_runs.h"
#include "report/assets.h"
#include "report/chart_data.h"
#include "report/format.h"
#include "report/html_tables.h"
#include "support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Report : public ::testing::Test {
 protected:
  std::filesystem::path fake(const std::string& name, const testing::FakeRun& run) {
    testing::write_fake_run(folder_.path() / name, run);
    return folder_.path() / name;
  }
  std::filesystem::path empty_run(const std::string& name, const std::string& config) {
    std::filesystem::create_directories(folder_.path() / name);
    std::ofstream(folder_.path() / name / "config.toml") << config;
    return folder_.path() / name;
  }

  testing::TemporaryFolder folder_;
};

// Text of tables without their tags: one row a line, cells (and their second lines) separated by '|'.
std::string rows_of(const std::string& html) {
  std::string text;
  for (std::size_t i = 0; i < html.size(); ++i) {
    if (html[i] != '<') {
      text += html[i];
      continue;
    }
    const std::string_view tag(html.data() + i, html.find('>', i) - i);
    const bool cell = tag.starts_with("<td") || (tag.starts_with("<th") && !tag.starts_with("<thead"));
    if (tag == "<small" || (cell && html.compare(i - 4, 4, "<tr>") != 0)) text += '|';
    i += tag.size();
  }
  return text;
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(Report, SummaryComparesWithTheDenseRun) {
  const auto runs = read_runs({fake("dense", {}), fake("slope", {.method = "slope"})});
  const std::string rows = rows_of(summary_section(runs));
  EXPECT_THAT(rows,
              HasSubstr("Run|Method|Parameters|Steps|Tokens|Val loss|Perplexity|Bits per byte|Time|Tokens / s|Memory"));
  EXPECT_THAT(rows, HasSubstr("dense|gpt2|dense|29.94M|29.94M kept|400|3.277M|"));
  EXPECT_THAT(rows, HasSubstr("slope|gpt2|slope 2:4|29.94M|20.50M kept|400|3.277M|"));
  EXPECT_THAT(rows, HasSubstr("|+0.0600 to dense|"));
  EXPECT_THAT(rows, HasSubstr("|698 MiB\n"));
  EXPECT_THAT(rows, HasSubstr("|555 MiB|0.80× dense\n"));
}

TEST_F(Report, LossesAfterDifferentNumbersOfTokensAreNotCompared) {
  const auto runs = read_runs({fake("dense", {}), fake("slope", {.method = "slope", .steps = 250})});
  const std::string rows = rows_of(summary_section(runs));
  EXPECT_THAT(rows, AllOf(Not(HasSubstr("to dense")), HasSubstr("|250|of 400|"), HasSubstr("|at step 240|")));
}

TEST_F(Report, RunsOfDifferentTasksAreNotCompared) {
  for (const char* key : {"model.width = 256", "data.tokenizer = \"bytes\"", "train.batch_tokens = 1"}) {
    const auto dense = fake("dense", {}), sparse = fake("slope", {.method = "slope"});
    EXPECT_THAT(summary_section(read_runs({dense, sparse})), HasSubstr("× dense"));
    std::ofstream(dense / "config.toml") << "model.width = 512\ntrain.batch_tokens = 8192\n";
    std::ofstream(sparse / "config.toml") << "weights.method = \"slope\"\n" << key << "\n";
    EXPECT_THAT(summary_section(read_runs({dense, sparse})), Not(HasSubstr("dense</small>"))) << key;
  }
}

TEST_F(Report, RunWithoutEvaluationShowsItsTrainingLoss) {
  const auto folder = fake("run", {.steps = 100});
  std::filesystem::remove(folder / "eval.jsonl");
  const auto runs = read_runs({folder});
  EXPECT_THAT(rows_of(summary_section(runs)),
              HasSubstr("|–|training " + format_number(*figures_of(runs[0]).train_loss, 5)));
}

TEST_F(Report, FiguresAreThoseOfTheMetrics) {
  const auto folder = empty_run("run",
                                "[model]\npreset = \"gpt2-124m\"\n[weights]\nmethod = \"slope\"\npattern = \"1:2\"\n"
                                "[train]\nsteps = 4\n");
  {
    MetricsWriter metrics(folder / "metrics.jsonl");
    for (std::int64_t step = 1; step <= 4; ++step) {
      StepMetrics line;
      line.step = step;
      line.tokens = step * 1000;
      line.loss = step == 2 ? std::numeric_limits<double>::quiet_NaN() : 5.0 - static_cast<double>(step);
      line.step_ms = 500;
      metrics.append(line);
    }
    MetricsWriter evaluations(folder / "eval.jsonl");
    evaluations.append(EvalMetrics{2, "perplexity", {{"loss", 3.0}}});
    evaluations.append(EvalMetrics{4, "perplexity", {{"loss", 2.0}, {"perplexity", 7.389}, {"bits_per_byte", 0.7}}});
    evaluations.append(EvalMetrics{4, "multiple-choice", {{"accuracy", 0.5}}});
  }
  const RunFigures figures = figures_of(read_runs({folder}).front());
  EXPECT_EQ(figures.model, "gpt2-124m");
  EXPECT_EQ(figures.method, "slope 1:2");
  EXPECT_FALSE(figures.dense);
  EXPECT_EQ(figures.steps, 4);
  EXPECT_EQ(figures.planned_steps, 4);
  EXPECT_EQ(figures.nonfinite_steps, 1);
  EXPECT_EQ(figures.train_loss, 1.0);
  EXPECT_EQ(figures.eval_step, 4);
  EXPECT_EQ(figures.val_loss, 2.0);
  EXPECT_EQ(figures.bits_per_byte, 0.7);
  EXPECT_EQ(figures.seconds, 2.0);
  EXPECT_EQ(figures.tokens_per_s, 2000.0);
  EXPECT_EQ(figures.memory_bytes, std::nullopt) << "there is no inspect.json";
}

TEST_F(Report, ConfigurationShowsWhatDiffers) {
  const auto first =
      empty_run("a", "[train]\nlr = 1e-3\nbetas = [0.9, 0.95]\n[[weights.override]]\nlayers = \"head\"\n");
  const auto second = empty_run("b", "[train]\nlr = 1.2e-3\nbetas = [0.9, 0.95]\n");
  const auto runs = read_runs({first, second});
  EXPECT_EQ(value_of(runs[0].config, "weights.override[0].layers"), "head");
  EXPECT_EQ(value_of(runs[0].config, "train.betas"), "[0.9, 0.95]");
  const std::string section = configuration_section(runs);
  const std::string differences = rows_of(section.substr(0, section.find("<details>")));
  EXPECT_THAT(differences, HasSubstr("train.lr|0.001|0.0012\n"));
  EXPECT_THAT(differences, HasSubstr("weights.override[0].layers|head|–\n"));
  EXPECT_THAT(differences, Not(HasSubstr("betas")));
  EXPECT_THAT(rows_of(section), HasSubstr("train.betas|[0.9, 0.95]|[0.9, 0.95]\n"));
  EXPECT_THAT(configuration_section(read_runs({first, first})), HasSubstr("The configurations are equal."));
}

TEST_F(Report, TablesOfMemoryLayersAndEnvironment) {
  const auto runs = read_runs({fake("slope", {.method = "slope", .steps = 10})});
  const std::string memory = rows_of(memory_tables(runs));
  EXPECT_THAT(memory, HasSubstr("Purpose|This run|If dense|Ratio"));
  EXPECT_THAT(memory, HasSubstr("moments|158 MiB|230 MiB|0.69×\n"));
  EXPECT_THAT(memory, HasSubstr("total|555 MiB|698 MiB|0.80×\n"));
  EXPECT_THAT(memory_tables(runs), HasSubstr("the workspace that all layers share: 40.0 MiB so far."));
  EXPECT_THAT(rows_of(layer_tables(runs)),
              HasSubstr("blocks.1-5.attention.qkv|slope 2:4|nm-avx512|5|1536 × 512|0.5\n"));
  EXPECT_THAT(rows_of(environment_section(runs)), HasSubstr("device.name|Some CPU\n"));
}

TEST_F(Report, KeptBlocksAreDrawn) {
  const auto folder = fake("block", {.method = "block"});
  const std::string html = layer_tables(read_runs({folder}));
  // One picture for each of the four kinds; qkv of block 0 is dense.
  EXPECT_EQ(count_of(html, "<svg "), 4);
  EXPECT_THAT(html, HasSubstr("blocks.1-5.attention.qkv<small>blocks.1.attention.qkv: 24 × 8 blocks of 64x64</small>"));
  EXPECT_THAT(html, HasSubstr("<svg viewBox=\"0 0 32 8\""));  // mlp.down, 512 × 2048
  EXPECT_THAT(html, HasSubstr("<path d=\"M0 0.5h1m1 0h1m1 0h1m1 0h1M1 1.5h1"));
  EXPECT_THAT(layer_tables(read_runs({fake("dense", {})})), Not(HasSubstr("<svg ")));
  const std::string entries = layer_tables(read_runs({fake("slope", {.method = "slope"})}));
  EXPECT_EQ(count_of(entries, "<svg "), 4);
  EXPECT_THAT(entries, HasSubstr("512 × 2048 entries, 2:4, the first 128 × 128</small>"));
  EXPECT_THAT(entries, HasSubstr("<path d=\"M0 0.5h2m2 0h2m2 0h2"));

  // Only whole checkpoints count, and the newest of them.
  const auto checkpoints = folder / "checkpoints";
  std::filesystem::create_directories(checkpoints / "step-00000500.writing");
  std::filesystem::rename(checkpoints / "step-00000400", checkpoints / "step-00000090");
  EXPECT_EQ(read_runs({folder})[0].masks.size(), 4u);
  std::filesystem::create_directories(checkpoints / "step-00000100");
  std::ofstream(checkpoints / "step-00000100" / "model.safetensors") << "torn";
  const auto damaged = read_runs({folder});
  EXPECT_TRUE(damaged[0].masks.empty());
  EXPECT_THAT(problems_section(damaged), HasSubstr("checkpoints is left out: "));
  std::filesystem::remove_all(checkpoints);
  EXPECT_TRUE(read_runs({folder})[0].problems.empty());
}

TEST_F(Report, TasksStandSideBySideWithTheirErrors) {
  const auto runs = read_runs({fake("dense", {.tasks = true}), fake("slope", {.method = "slope", .tasks = true}),
                               fake("none", {.method = "block"})});
  const std::string rows = rows_of(tasks_section(runs));
  EXPECT_THAT(rows, HasSubstr("Task|dense|slope|none"));
  EXPECT_THAT(rows,
              HasSubstr("hellaswag|accuracy|30.00 % ± 3.00 %|34.00 % ± 4.00 %|+4.00 points to dense, 0.8 errors|–"));
  EXPECT_THAT(rows, HasSubstr("lambada|perplexity|20 ± 2|22 ± 2|+2 to dense, 0.7 errors|–"));
  EXPECT_EQ(tasks_section(read_runs({folder_.path() / "none"})), "") << "perplexity alone is in the summary";
}

TEST_F(Report, LargeMasksShowTheirCorner) {
  const LayerMask mask{"up", "up", "blocks of 16x16", 400, 300, {{true, true, false}, {false, true, true}}};
  const std::string html = mask_pictures({mask});
  EXPECT_THAT(html, HasSubstr("400 × 300 blocks of 16x16, the first 2 × 3"));
  EXPECT_THAT(html, HasSubstr("d=\"M0 0.5h2M1 1.5h2\""));
}

TEST_F(Report, PageIsSelfContainedAndReproducible) {
  const auto runs = read_runs({fake("dense", {.steps = 50}), fake("slope", {.method = "slope", .steps = 50})});
  const std::string page = html_report(runs);
  EXPECT_EQ(page, html_report(runs));
  for (const std::string_view asset : {assets::chart_js, assets::report_js, assets::report_css}) {
    EXPECT_NE(page.find(asset), std::string::npos);
    EXPECT_EQ(asset.find("</script"), std::string_view::npos);
    EXPECT_EQ(asset.find("<!--"), std::string_view::npos);
  }
  for (const char* name : {"report.js", "report.css"}) {
    std::ostringstream file;
    file << std::ifstream(std::string(FILIGREE_SOURCE_DIR "/src/report/") + name, std::ios::binary).rdbuf();
    EXPECT_THAT(page, HasSubstr(file.str())) << name;
  }
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy\" content=\"default-src 'none';"));
  for (const char* link : {"src=\"http", "href=\"http", "src=http", "href=http", "@import", "url("})
    EXPECT_EQ(page.find(link), std::string::npos) << link;
}

TEST_F(Report, TextOfRunsIsHarmless) {
  const std::string attack = "</script><script>alert(1)</script> & \"quoted\" 'too' \x01";
  const auto folder = fake("<b>run", {.method = "slope", .steps = 20, .planned_steps = 20, .sample = attack});
  MetricsWriter(folder / "eval.jsonl").append(EvalMetrics{20, "</script><script>", {{"<i>", 1.0}}});
  MetricsWriter(folder / "eval.jsonl").append(EvalMetrics{20, "<img src=x>", {{"loss", 1.0}}});
  const std::string page = html_report(read_runs({folder}));
  const std::string escaped =
      "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quoted&quot; &#39;too&#39; \uFFFD";
  EXPECT_THAT(page, HasSubstr(escaped));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<b>run")), Not(HasSubstr("<img")), Not(HasSubstr("alert(1)<")),
                          Not(HasSubstr("<i>"))));
  // The data's own script element, and the three scripts of the page: no fifth one.
  std::size_t scripts = 0;
  for (std::size_t at = page.find("<script"); at != std::string::npos; at = page.find("<script", at + 1)) ++scripts;
  EXPECT_EQ(scripts, 4u);
}

TEST(EscapeHtml, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(escape_html("a\xff"
                        "b\xc3\xa9"),
            "a\uFFFDb\u00e9");
  EXPECT_EQ(escape_html("line\n\ttab"), "line\n\ttab");
}

TEST_F(Report, SamplesAreNewestFirstWithoutTheirPromptTwice) {
  const auto folder = empty_run("run", "");
  {
    std::ofstream samples(folder / "samples.jsonl");
    for (int step = 1; step <= 30; ++step)
      samples << "{\"step\":" << step << ",\"prompt\":\"Once\",\"text\":\"" << (step == 30 ? "Once more" : " again")
              << "\"}\n";
    samples << "{\"step\":31,\"pro";  // torn
  }
  const std::string section = samples_section(read_runs({folder}));
  EXPECT_THAT(section, HasSubstr("<figcaption>Step 30</figcaption><p><b>Once</b> more</p>"));
  EXPECT_LT(section.find("Step 30<"), section.find("Step 29<"));
  EXPECT_THAT(section, HasSubstr("18 older samples are in samples.jsonl."));
  EXPECT_THAT(section, Not(HasSubstr("Step 18<")));
}

TEST_F(Report, DamagedFilesAreNamedAndTheRestIsShown) {
  const auto folder = fake("run", {.steps = 30});
  std::ofstream(folder / "inspect.json") << "{\"layers\": [";
  std::ofstream(folder / "config.toml") << "[train]\nsteps = = 3\n";
  std::ofstream(folder / "environment.json") << "{\"a\":";
  std::ofstream(folder / "eval.jsonl") << "nonsense\n";
  std::ofstream(folder / "samples.jsonl") << "{\"step\":1}\n";
  const std::string page = html_report(read_runs({folder}));
  EXPECT_THAT(page, HasSubstr("config.toml is left out: line 2"));
  for (const char* name : {"inspect.json", "environment.json", "eval.jsonl", "samples.jsonl"})
    EXPECT_THAT(page, HasSubstr(std::string(name) + " is left out: "));
  EXPECT_THAT(page, HasSubstr("id=\"chart-loss\""));
  EXPECT_THAT(page, Not(HasSubstr("chart-memory\"")));
}

TEST_F(Report, RunsOfOneNameAreToldApart) {
  const auto runs = read_runs({fake("first/run", {.steps = 5}), fake("second/run", {.steps = 5})});
  EXPECT_EQ(runs[0].name, "first/run");
  EXPECT_EQ(runs[1].name, "second/run");
  EXPECT_EQ(read_runs({folder_.path() / "first/run/"}).front().name, "run");
}

TEST_F(Report, FolderThatIsNoRunIsAUserError) {
  EXPECT_THROW(read_runs({folder_.path()}), UserError);
  EXPECT_THROW(read_runs({folder_.path() / "missing"}), UserError);
}

TEST_F(Report, LongRunGivesASmallPage) {
  const auto folder = empty_run("long", "");
  {
    std::ofstream metrics(folder / "metrics.jsonl");
    for (int step = 1; step <= 100'000; ++step)
      metrics << "{\"step\":" << step << ",\"tokens\":" << step * 1000LL << ",\"loss\":" << 10.0 / std::sqrt(step)
              << ",\"lr\":0.001,\"grad_norm\":1.25,\"step_ms\":100.5,\"tokens_per_s\":9950.2}\n";
  }
  EXPECT_LT(html_report(read_runs({folder})).size(), 500'000u);
}

TEST(ChartData, ColoursTellDenseRunsFromSparseOnes) {
  std::vector<RunData> runs(4);
  runs[1].config = {{"weights.method", "slope"}};
  runs[2].config = {{"weights.method", "dense"}};
  runs[3].config = {{"weights.method", "block"}};
  EXPECT_THAT(run_colours(runs), ElementsAre("dense-0", "sparse-0", "dense-1", "sparse-1"));
  // Every colour that can be given is defined by the style, in light and in dark and on paper.
  for (const char* colour : {"--dense-2:", "--sparse-5:"}) {
    std::size_t count = 0;
    for (std::size_t at = assets::report_css.find(colour); at != std::string_view::npos;
         at = assets::report_css.find(colour, at + 1))
      ++count;
    EXPECT_EQ(count, 3u) << colour;
  }
}

}  // namespace
}  // namespace filigree
