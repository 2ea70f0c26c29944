// filigree bench exchange.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace filigree {

void add_bench_exchange(CLI::App& bench, std::vector<std::string> command_line);

}  // namespace filigree
