#include "doctor_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "doctor_checks.h"

namespace filigree {
namespace {

// 1 where something that this build needs is missing.
int run(bool json) {
  const std::vector<DoctorCheck> checks = doctor_checks();
  int missing = 0;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DoctorCheck& check : checks) {
    const bool bad = !check.found && check.needed;
    missing += bad ? 1 : 0;
    if (json) {
      list.push_back({{"name", check.name},
                      {"found", check.found},
                      {"needed", check.needed},
                      {"value", check.value},
                      {"advice", check.found ? "" : check.advice}});
      continue;
    }
    const char* mark = check.found ? "found" : bad ? "MISSING" : "absent";
    fmt::print("{:<8} {:<14} {}\n", mark, check.name, check.found ? check.value : check.advice);
    if (!check.found && !check.value.empty()) fmt::print("{:<24}{}\n", "", check.value);
  }
  if (json)
    fmt::print("{}\n", nlohmann::ordered_json{{"missing", missing}, {"checks", list}}.dump(
                           2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    fmt::print("{}\n", missing == 0 ? "nothing is missing that this build needs"
                                    : "some of what this build needs is missing: see above");
  return missing == 0 ? 0 : 1;
}

}  // namespace

void add_doctor_command(CLI::App& program) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command =
      program.add_subcommand("doctor", "says what was found on this machine, what is missing and how to get it");
  command->add_flag("--json", *json, "print one JSON object");
  command->footer("Ends with 1 where something is missing that this build needs.\n\nExample:\n  filigree doctor\n");
  command->callback([json] {
    if (const int code = run(*json); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace filigree
