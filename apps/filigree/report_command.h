// filigree report RUN... --out FILE.html
#pragma once

namespace CLI {
class App;
}

namespace filigree {

// Adds the subcommand to the program. It runs while the command line is parsed and throws as the library does.
void add_report_command(CLI::App& program);

}  // namespace filigree
