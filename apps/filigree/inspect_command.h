#pragma once

namespace CLI {
class App;
}

namespace filigree {

// Adds `filigree inspect`; it runs while the command line is parsed and throws as the library does.
void add_inspect_command(CLI::App& program);

}  // namespace filigree
