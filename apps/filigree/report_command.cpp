#include "report_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "report/html_report.h"

namespace filigree {
namespace {

struct Options {
  std::vector<std::string> runs;
  std::string out;
  bool force = false;
};

void run_report(const Options& options) {
  const std::filesystem::path out = options.out;
  require_user(!std::filesystem::is_directory(out), "--out " + options.out +
                                                        " is a folder; give the name of a file, "
                                                        "e.g. --out " +
                                                        (out / "report.html").string());
  require_user(options.force || !std::filesystem::exists(out),
               "--out " + options.out + " exists already; choose another name, or replace it with --force");
  require_user(
      out.parent_path().empty() || std::filesystem::is_directory(out.parent_path()),
      "--out " + options.out + ": the folder " + out.parent_path().string() + " does not exist; make it first");
  write_html_report({options.runs.begin(), options.runs.end()}, out);
  fmt::print("wrote {}\n", options.out);
}

}  // namespace

void add_report_command(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("report", "One self-contained HTML page that shows and compares runs");
  command->add_option("runs", options->runs, "Folders of runs, as made by filigree train")
      ->required()
      ->type_name("RUN");
  command->add_option("--out", options->out, "The page to write")->required()->type_name("FILE.html");
  command->add_flag("--force", options->force, "Replace the page if it exists");
  command->footer("Example: filigree report runs/dense runs/slope --out comparison.html");
  command->callback([options] { run_report(*options); });
}

}  // namespace filigree
