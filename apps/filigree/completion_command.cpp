#include "completion_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

namespace filigree {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "a b c" of "TEXT:{a,b,c}", as CLI11 names the type of an option with choices; "" of others.
std::string choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  std::string choices = type.substr(begin + 1, end - begin - 1);
  for (char& c : choices)
    if (c == ',') c = ' ';
  return choices;
}

// The lines of one command and of those inside it. `path`: "bench matmul".
void add_command(const CLI::App& app, const std::string& path, std::string& words, std::string& values) {
  std::string line;
  for (const CLI::App* inner : commands_of(app)) line += inner->get_name() + " ";
  for (const CLI::Option* option : app.get_options()) {
    std::string names;
    for (const std::string& name : option->get_lnames()) names += (names.empty() ? "--" : "|--") + name;
    if (names.empty()) continue;
    for (const std::string& name : option->get_lnames()) line += "--" + name + " ";
    if (option->get_expected_max() == 0) continue;  // a flag: nothing follows
    const std::string choices = choices_of(*option);
    // Files where nothing is known of the value.
    for (const std::string& name : option->get_lnames())
      values += "    '" + path + " --" + name + "') choices='" + (choices.empty() ? "@files" : choices) + "' ;;\n";
  }
  words += "    '" + path + "') words='" + line + "' ;;\n";
  for (const CLI::App* inner : commands_of(app))
    add_command(*inner, (path.empty() ? "" : path + " ") + inner->get_name(), words, values);
}

}  // namespace

std::string bash_completion(const CLI::App& program) {
  std::string words, values;
  add_command(program, "", words, values);
  return R"(# bash completion of filigree, made by `filigree completion bash`
_filigree() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local path='' words='' choices='' word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$path${path:+ }$word" in
)" +
         [&] {
           std::string cases;
           const std::function<void(const CLI::App&, const std::string&)> add = [&](const CLI::App& app,
                                                                                    const std::string& path) {
             for (const CLI::App* inner : commands_of(app)) {
               const std::string name = (path.empty() ? "" : path + " ") + inner->get_name();
               cases += (cases.empty() ? "      '" : "|'") + name + "'";
               add(*inner, name);
             }
           };
           add(program, "");
           return cases;
         }() +
         R"() path+="${path:+ }$word" ;;
    esac
  done
  case "$path $previous" in
)" + values +
         R"(  esac
  if [[ $choices == @files ]]; then
    COMPREPLY=($(compgen -f -- "$current"))
    return
  fi
  if [[ -n $choices ]]; then
    COMPREPLY=($(compgen -W "$choices" -- "$current"))
    return
  fi
  case "$path" in
)" + words +
         R"(  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  # Runs, configurations and the like; not before a command is named.
  if [[ -n $path && $current != -* ]]; then COMPREPLY+=($(compgen -f -- "$current")); fi
}
complete -o filenames -F _filigree filigree
)";
}

void add_completion_command(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("completion", "prints what a shell needs to complete commands and options");
  CLI::App* bash = command->add_subcommand("bash", "for bash");
  command->require_subcommand(1);
  bash->footer("Example:\n  filigree completion bash > ~/.local/share/bash-completion/completions/filigree\n");
  bash->callback([&program] { std::fputs(bash_completion(program).c_str(), stdout); });
}

}  // namespace filigree
