#pragma once

#include <string>

namespace CLI {
class App;
}

namespace filigree {

// Adds `filigree completion bash`, which prints what a shell needs to complete the program's commands and options.
void add_completion_command(CLI::App& program);

// A bash script made of the program's own structure, so that nothing has to be kept equal by hand.
std::string bash_completion(const CLI::App& program);

}  // namespace filigree
