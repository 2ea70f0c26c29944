#pragma once

namespace CLI {
class App;
}

namespace filigree {

// Adds `filigree prepare`; it runs when it was parsed.
void add_prepare_command(CLI::App& app);

}  // namespace filigree
