// The program: commands, and the exit codes that they share.
//   0 done · 1 the run failed · 2 the user's input is wrong · 3 interrupted
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "bench_command.h"
#include "comm/agreement.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "eval_command.h"
#include "generate_command.h"
#include "hub_commands.h"
#include "inspect_command.h"
#include "plan_command.h"
#include "prepare_command.h"
#include "report_command.h"
#include "train_command.h"
#include "tune_command.h"
#include "version.h"

namespace {

std::string version_text() {
  namespace build = filigree::build;
  std::string text = "filigree " + std::string(build::kVersion) + " (" + std::string(build::kCommit) + ", " +
                     std::string(build::kBuildType) + ", " + std::string(build::kCompiler) + ")\nback ends: CPU";
  if (!build::kCudaArchitectures.empty())
    text += ", CUDA (" + std::string(build::kCudaCompiler) + ", for " + std::string(build::kCudaArchitectures) + ")";
  return text;
}

// CLI11 would only say that a command is missing.
void require_known_command(const CLI::App& program, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string names;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == argv[1]) return;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  throw filigree::UserError("there is no command '" + std::string(argv[1]) + "'; there are " + names +
                            "; see filigree --help");
}

// What is wrong with the command line. An option that does not exist comes first: "--text is required" says nothing to
// somebody who has written --txt.
std::string problem_of(const CLI::App& program, const CLI::ParseError& error) {
  const auto commands = program.get_subcommands();
  const std::string help = "; see filigree " + (commands.empty() ? "" : commands.front()->get_name() + " ") + "--help";
  for (const std::string& word : program.remaining(true))
    if (word.starts_with('-')) return "there is no option " + word + help;
  return error.what() + help;
}

int fail(const char* text, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "filigree: %s\n", text);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program("filigree: sparse pre-training of language models");
  program.set_version_flag("--version", version_text());
  program.require_subcommand(1);
  program.footer("Start with: filigree prepare --help");
  filigree::add_prepare_command(program);
  filigree::add_train_command(program);
  filigree::add_tune_command(program);
  filigree::add_eval_command(program);
  filigree::add_generate_command(program);
  filigree::add_inspect_command(program);
  filigree::add_import_command(program);
  filigree::add_export_command(program);
  filigree::add_bench_command(program, {argv, argv + argc});
  filigree::add_plan_command(program);
  filigree::add_report_command(program);
  filigree::catch_interrupts();
  try {
    require_known_command(program, argc, argv);
    program.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& request) {  // --help, --version
    return program.exit(request);
  } catch (const CLI::RuntimeError& ended) {  // a command's own exit code
    return ended.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return fail(problem_of(program, error).c_str(), 2);
  } catch (const filigree::FailedElsewhere& error) {
    return error.code();  // another rank says why
  } catch (const filigree::UserError& error) {
    return fail(error.what(), 2);
  } catch (const filigree::Interrupted& error) {
    return fail(error.what(), 3);
  } catch (const std::bad_alloc&) {
    return fail("out of memory; a smaller batch or a shorter context needs less", 1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}
