// filigree tune: short runs over a grid of learning rates.
#pragma once

namespace CLI {
class App;
}

namespace filigree {

void add_tune_command(CLI::App& program);

}  // namespace filigree
