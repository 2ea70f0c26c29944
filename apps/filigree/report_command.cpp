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
  write_html_report({options.runs.begin(), options.runs.end()}, out);
  fmt::print("wrote {}\n", options.out);
}

}  // namespace

void add_report_command(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      program.add_subcommand("report", "writes one self-contained HTML page that shows and compares runs");
  command->add_option("runs", options->runs, "folders of runs, as made by filigree train")
      ->required()
      ->type_name("RUN");
  command->add_option("--out", options->out, "the page to write")->required()->type_name("FILE.html");
  command->add_flag("--force", options->force, "replace the page if it exists");
  command->footer("Example:\n  filigree report runs/dense runs/slope --out comparison.html\n");
  command->callback([options] { run_report(*options); });
}

}  // namespace filigree
