#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace filigree {

// Adds `filigree bench`; it runs while the command line is parsed and throws as the library does. `command` is the
// program's command line, kept with the results.
void add_bench_command(CLI::App& program, std::vector<std::string> command);

}  // namespace filigree
