// filigree report: what it writes, and what it says when it refuses.
#include <gmock/gmock.h>

#include <CLI/CLI.hpp>
#include <fstream>

#include "fake_runs.h"
#include "filigree/report_command.h"
#include "support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void report(std::vector<std::string> arguments) {
  CLI::App program;
  add_report_command(program);
  arguments.insert(arguments.begin(), "report");
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them last first
  program.parse(arguments);
}

std::string mistake(const std::vector<std::string>& arguments) {
  try {
    report(arguments);
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(ReportCommand, WritesThePageAndReplacesItOnlyWhenForced) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path() / "run", page = folder.path() / "page.html";
  testing::write_fake_run(run, {.steps = 20, .planned_steps = 20, .eval_every = 10});
  report({run, "--out", page});
  ASSERT_GT(std::filesystem::file_size(page), 200'000u);
  std::ofstream(page) << "old";
  EXPECT_THAT(mistake({run, "--out", page}), AllOf(HasSubstr("page.html exists already"), HasSubstr("--force")));
  EXPECT_EQ(std::filesystem::file_size(page), 3u);
  report({run, "--out", page, "--force"});
  EXPECT_GT(std::filesystem::file_size(page), 200'000u);
}

TEST(ReportCommand, MistakesAreNamedAndNothingIsWritten) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path() / "run", page = folder.path() / "page.html";
  testing::write_fake_run(run, {.steps = 20, .planned_steps = 20, .eval_every = 10});
  EXPECT_THAT(mistake({folder.path(), "--out", page}), HasSubstr("is not a run: it has neither config.toml nor"));
  EXPECT_THAT(mistake({run, folder.path() / "missing", "--out", page}), HasSubstr("missing is not a folder"));
  EXPECT_THAT(mistake({run, "--out", folder.path()}), HasSubstr("is a folder; give the name of a file"));
  EXPECT_THAT(mistake({folder.path(), "--out", folder.path() / "no" / "page.html"}), HasSubstr("is not a run"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "no"));
  EXPECT_EQ(mistake({run, "--out", folder.path() / "no" / "page.html"}), "(accepted)") << "its folder is made";
  EXPECT_FALSE(std::filesystem::exists(page));
  EXPECT_THROW(report({run}), CLI::RequiredError);
  EXPECT_THROW(report({"--out", page}), CLI::RequiredError);
}

}  // namespace
}  // namespace filigree
