// filigree plan: memory, step time and bytes on the wire of many ranks, predicted.
#pragma once

namespace CLI {
class App;
}

namespace filigree {

void add_plan_command(CLI::App& program);

}  // namespace filigree
