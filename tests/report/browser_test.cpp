// The report in a real browser: Chromium without a window runs the page's scripts and prints the resulting document.
#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "fake_runs.h"
#include "report/html_report.h"
#include "support.h"

namespace filigree {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string find_chromium() {
  std::istringstream folders(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
      if (const auto file = std::filesystem::path(folder) / name; std::filesystem::exists(file)) return file.string();
  return "";
}

// Runs the page and returns its document after the scripts have run. `hash`: what stands behind # in the address.
std::string document_of(const std::string& chromium, const std::filesystem::path& page, const std::string& hash) {
  const std::string profile = (page.parent_path() / "profile").string();
  const std::string command = "timeout 200 '" + chromium + "' --headless --no-sandbox --disable-gpu --user-data-dir='" +
                              profile + "' --window-size=1280,900 --virtual-time-budget=5000 --dump-dom 'file://" +
                              page.string() + hash + "' 2>/dev/null";
  std::string document;
  FILE* pipe = popen(command.c_str(), "r");
  require(pipe != nullptr, "cannot start " + chromium);
  std::array<char, 65536> block;
  while (const std::size_t bytes = fread(block.data(), 1, block.size(), pipe)) document.append(block.data(), bytes);
  require(pclose(pipe) == 0, "chromium failed on " + page.string());
  return document;
}

// The tag of an element by its id, e.g. "<canvas id=... data-points=...>".
std::string tag_of(const std::string& document, const std::string& id) {
  const std::size_t at = document.find(" id=\"" + id + "\"");
  if (at == std::string::npos) return "";
  const std::size_t begin = document.rfind('<', at);
  return document.substr(begin, document.find('>', at) - begin + 1);
}

std::string attribute(const std::string& tag, const std::string& name) {
  const std::string start = " " + name + "=\"";
  const std::size_t at = tag.find(start);
  if (at == std::string::npos) return "(none)";
  const std::size_t begin = at + start.size();
  return tag.substr(begin, tag.find('"', begin) - begin);
}

class Browser : public ::testing::Test {
 protected:
  void SetUp() override {
    chromium_ = find_chromium();
    if (chromium_.empty()) GTEST_SKIP() << "Chromium is not installed: the report's scripts are not tested";
  }
  // Reports on the runs and opens the page.
  std::string open(const std::vector<std::filesystem::path>& runs, const std::string& hash = "") {
    const auto page = folder_.path() / "report.html";
    write_html_report(runs, page);
    const std::string document = document_of(chromium_, page, hash);
    root_ = document.substr(document.find("<html"), 400);
    root_ = root_.substr(0, root_.find('>') + 1);
    return document;
  }

  testing::TemporaryFolder folder_;
  std::string chromium_;
  std::string root_;  // the <html> tag of the last page
};

TEST_F(Browser, DrawsEveryChartOfTwoRuns) {
  const auto dense = folder_.path() / "dense", sparse = folder_.path() / "slope";
  testing::write_fake_run(dense, {.steps = 3000, .planned_steps = 3000, .eval_every = 300});
  testing::write_fake_run(sparse, {.method = "slope",
                                   .steps = 3000,
                                   .planned_steps = 3000,
                                   .eval_every = 300,
                                   .sample = "</script><script>nothing.here()</script><img src=x onerror=fail()>"});
  const std::string document = open({dense, sparse});
  EXPECT_EQ(attribute(root_, "data-ready"), "true");
  EXPECT_EQ(attribute(root_, "data-errors"), "(none)") << attribute(root_, "data-error");
  EXPECT_EQ(attribute(root_, "data-charts"), "7");
  for (const char* id : {"loss", "grad-norm", "tokens-per-s"}) {  // noisy: averages in front of the values
    const std::string canvas = tag_of(document, std::string("chart-") + id);
    EXPECT_EQ(attribute(canvas, "data-runs"), "2") << id;
    EXPECT_EQ(attribute(canvas, "data-points"), "600 600 300 300") << id;
    EXPECT_EQ(attribute(canvas, "data-axis"), "step") << id;
    EXPECT_EQ(attribute(canvas, "data-end"), "3000") << id << ": the last step, not a round number after it";
    EXPECT_THAT(attribute(canvas, "aria-label"), HasSubstr("dense ends at ")) << id;
  }
  EXPECT_EQ(attribute(tag_of(document, "chart-val-loss"), "data-points"), "10 10");
  EXPECT_EQ(attribute(tag_of(document, "chart-lr"), "data-points"), "600 600");
  // Two bars (the dense run, which is the dense model too, and the sparse one) in each of the six purposes.
  EXPECT_EQ(attribute(tag_of(document, "chart-memory"), "data-points"), "2 2 2 2 2 2");
  EXPECT_EQ(attribute(tag_of(document, "chart-density"), "data-points"), "25 25");
  // Chart.js has given every canvas a size: it was laid out.
  EXPECT_NE(attribute(tag_of(document, "chart-loss"), "width"), "(none)");
  EXPECT_THAT(document, HasSubstr("&lt;/script&gt;&lt;script&gt;nothing.here()"));
  EXPECT_THAT(document, Not(HasSubstr("<img")));
}

TEST_F(Browser, ShowsTheKeptBlocks) {
  const auto run = folder_.path() / "block";
  testing::write_fake_run(run, {.method = "block"});
  const auto page = folder_.path() / "measured.html";
  std::ofstream(page) << html_report(read_runs({run})) << R"html(<script>
const picture = document.querySelector(".mask svg"), box = picture.getBoundingClientRect();
document.body.dataset.picture = document.querySelectorAll(".mask svg").length + " of " + Math.round(box.width) + " x " +
                                Math.round(box.height) + ", " + getComputedStyle(picture.firstChild).stroke;
</script>)html";
  const std::string document = document_of(chromium_, page, "");
  // 512 × 512 in blocks of 64: 8 × 8 squares.
  EXPECT_THAT(document, HasSubstr("data-picture=\"4 of 48 x 48, rgb("));
}

TEST_F(Browser, LooksCloserAtTheKeptEntries) {
  const auto run = folder_.path() / "slope";
  testing::write_fake_run(run, {.method = "slope"});
  const auto page = folder_.path() / "zoomed.html";
  std::ofstream(page) << html_report(read_runs({run})) << R"html(<script>
const picture = document.querySelector(".mask svg"), [closer, away, whole] = document.querySelectorAll(".mask .zoom button");
const seen = [], note = () => seen.push(picture.getAttribute("viewBox").split(" ").map(Math.round).join(" "));  // a click has whole pixels
note();
closer.click(); note();
closer.click(); note();
away.click(); note();
const box = picture.getBoundingClientRect();
picture.dispatchEvent(new MouseEvent("dblclick", {clientX: box.left, clientY: box.top})); note();
for (let i = 0; i < 9; ++i) closer.click();
seen.push(picture.viewBox.baseVal.width);
whole.click(); note();
document.body.dataset.seen = seen.join("; ");
</script>)html";
  const std::string document = document_of(chromium_, page, "");
  EXPECT_THAT(
      document,
      HasSubstr("data-seen=\"0 0 128 128; 32 32 64 64; 48 48 32 32; 32 32 64 64; 32 32 32 32; 8; 0 0 128 128\""));
}

TEST_F(Browser, ShowsTasksSideBySide) {
  const auto dense = folder_.path() / "dense", sparse = folder_.path() / "slope";
  testing::write_fake_run(dense, {.tasks = true});
  testing::write_fake_run(sparse, {.method = "slope", .tasks = true});
  const std::string document = open({dense, sparse});
  EXPECT_EQ(attribute(root_, "data-errors"), "(none)") << attribute(root_, "data-error");
  EXPECT_EQ(attribute(root_, "data-charts"), "9") << "one more for each task";
  EXPECT_EQ(attribute(tag_of(document, "chart-eval-hellaswag"), "data-runs"), "2");
  EXPECT_THAT(document, HasSubstr("id=\"tasks\""));
}

TEST_F(Browser, SwitchesAreSetFromTheAddress) {
  const auto run = folder_.path() / "run";
  testing::write_fake_run(run, {.steps = 1000, .planned_steps = 1000});
  const std::string document = open({run}, "#axis=seconds&smooth=off&log=on");
  EXPECT_EQ(attribute(root_, "data-errors"), "(none)") << attribute(root_, "data-error");
  const std::string loss = tag_of(document, "chart-loss");
  EXPECT_EQ(attribute(loss, "data-points"), "600");  // one line, no average
  EXPECT_EQ(attribute(loss, "data-axis"), "training time, minutes");
  EXPECT_EQ(attribute(loss, "data-scale"), "logarithmic");
  EXPECT_EQ(attribute(tag_of(document, "chart-grad-norm"), "data-scale"), "linear");
}

TEST_F(Browser, ButtonsHideARunAndChangeTheAxis) {
  const auto dense = folder_.path() / "dense", sparse = folder_.path() / "slope";
  testing::write_fake_run(dense, {});
  testing::write_fake_run(sparse, {.method = "slope"});
  // A reader's clicks, at the end of the page: its own scripts have run by then.
  const auto page = folder_.path() / "clicked.html";
  std::ofstream(page) << html_report(read_runs({dense, sparse})) << R"html(<script>
document.querySelector('[data-run="0"]').click();
document.querySelector('[data-axis="tokens"]').click();
document.getElementById("smooth").click();
const chart = Chart.getChart("chart-loss");
document.body.dataset.seen = chart.data.datasets.map((set, i) => set.label + "=" + chart.isDatasetVisible(i)).join(" ");
document.body.dataset.last = chart.data.datasets[0].data.at(-1).x;
</script>)html";
  const std::string document = document_of(chromium_, page, "");
  EXPECT_THAT(document, HasSubstr("data-seen=\"dense=false slope=true\""));
  EXPECT_THAT(document, HasSubstr("data-last=\"3276800\""));  // 400 steps of 8192 tokens
  EXPECT_EQ(attribute(tag_of(document, "chart-loss"), "data-axis"), "tokens");
  EXPECT_THAT(document, HasSubstr("data-axis=\"tokens\" aria-pressed=\"true\""));
  EXPECT_THAT(document, HasSubstr("data-axis=\"step\" aria-pressed=\"false\""));
  EXPECT_THAT(document, HasSubstr("data-run=\"0\" aria-pressed=\"false\""));
}

TEST_F(Browser, RunThatHasOnlyBegunGivesAPageWithoutErrors) {
  const auto run = folder_.path() / "begun";
  std::filesystem::create_directories(run);
  std::ofstream(run / "config.toml") << "[weights]\nmethod = \"slope\"\n";
  const std::string document = open({run});
  EXPECT_EQ(attribute(root_, "data-ready"), "true");
  EXPECT_EQ(attribute(root_, "data-errors"), "(none)") << attribute(root_, "data-error");
  EXPECT_EQ(attribute(root_, "data-charts"), "0");
  EXPECT_THAT(document, HasSubstr("no step has been recorded yet"));
}

}  // namespace
}  // namespace filigree
